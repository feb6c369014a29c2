package servertest

import (
	"io"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// proxied is a Redis behind a proxy, a client through the proxy, and one that reaches the Redis without it.
func proxied(t *testing.T) (r *Redis, p *Proxy, c, direct *client) {
	t.Helper()
	r = StartRedis(t)
	p = StartProxy(t, r.Addr())
	c, direct = dial(t, p.Addr()), dial(t, r.Addr())
	c.ask(t, "PING", "+PONG")
	return r, p, c, direct
}

func TestProxyURL(t *testing.T) {
	p := StartProxy(t, "127.0.0.1:1")
	got := p.URL("mysql://root:secret@db.example:3306/claims?tls=false")
	if want := "mysql://root:secret@" + p.Addr() + "/claims?tls=false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	dial(t, p.Addr()).mustEnd(t) // nothing listens at the target
}

func TestCutReply(t *testing.T) {
	_, p, c, direct := proxied(t)
	cut := p.CutReply("dispatch:lock:")
	c.ask(t, "SET other v", "+OK")
	select {
	case <-cut.Done():
		t.Fatal("done before its request came")
	default:
	}
	c.send(t, "SET dispatch:lock:1 me NX")
	testkit.Await(t, "the cut", cut.Done())
	direct.ask(t, "GET dispatch:lock:1", "me")
	c.mustEnd(t)

	again := dial(t, p.Addr())
	again.ask(t, "SET dispatch:lock:2 me NX", "+OK") // it happens once
}

func TestCutReplyOfARequestInPieces(t *testing.T) {
	_, p, c, direct := proxied(t)
	cut := p.CutReply("dispatch:lock:")
	for _, b := range []byte("SET dispatch:lock:1 me NX\r\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Await(t, "the cut", cut.Done())
	c.mustEnd(t)
	direct.ask(t, "GET dispatch:lock:1", "me")
}

func TestCutReplyWaitsForTheServerAfterTheClientHungUp(t *testing.T) {
	r, p, c, direct := proxied(t)
	r.Freeze()
	cut := p.CutReply("SET k")
	c.send(t, "SET k v")
	c.Close()
	r.Thaw()
	testkit.Await(t, "the cut", cut.Done())
	direct.ask(t, "GET k", "v")
}

// The match counts only on the connection that sent after.
func TestCutReplyAfter(t *testing.T) {
	_, p, c, _ := proxied(t)
	other := dial(t, p.Addr())
	cut := p.CutReply("PING", "SET k")
	c.ask(t, "PING", "+PONG")
	c.ask(t, "SET k v", "+OK")
	other.ask(t, "PING", "+PONG")
	c.send(t, "PING")
	testkit.Await(t, "the cut", cut.Done())
	c.mustEnd(t)
}

func TestHold(t *testing.T) {
	_, p, held, direct := proxied(t)
	other := dial(t, p.Addr())
	h := p.Hold("SET k")
	held.send(t, "SET k v")
	testkit.Await(t, "the hold", h.Reached())
	direct.ask(t, "GET k", "(nil)")
	held.mustBeSilent(t)
	other.ask(t, "SET k other", "+OK") // it happens once, to one connection
	h.Release()
	h.Release()
	held.mustReply(t, "+OK")
	direct.ask(t, "GET k", "v")
}

func TestHeldRequestArrivesAfterTheClientHungUp(t *testing.T) {
	_, p, c, direct := proxied(t)
	h := p.Hold("SET k")
	c.send(t, "SET k v")
	testkit.Await(t, "the hold", h.Reached())
	c.Close()
	direct.ask(t, "GET k", "(nil)")
	h.Release()
	testkit.Retry(t, func() error {
		direct.send(t, "GET k")
		if got, err := direct.reply(testkit.Patience); err != nil || got != "v" {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
}

func TestHoldIsEndedByCutAll(t *testing.T) {
	_, p, c, direct := proxied(t)
	h := p.Hold("SET k")
	c.send(t, "SET k v")
	testkit.Await(t, "the hold", h.Reached())
	p.CutAll()
	c.mustEnd(t)
	h.Release()
	direct.ask(t, "GET k", "(nil)")
}

func TestHoldAndCutTheSameRequest(t *testing.T) {
	_, p, c, direct := proxied(t)
	h, cut := p.Hold("SET k"), p.CutReply("SET k")
	c.send(t, "SET k v")
	testkit.Await(t, "the hold", h.Reached())
	direct.ask(t, "GET k", "(nil)")
	h.Release()
	testkit.Await(t, "the cut", cut.Done())
	c.mustEnd(t)
	direct.ask(t, "GET k", "v")
}

func TestBlackhole(t *testing.T) {
	_, p, busy, direct := proxied(t)
	idle := dial(t, p.Addr())
	idle.ask(t, "PING", "+PONG")

	p.Blackhole(true)
	busy.send(t, "SET k v")
	late := dial(t, p.Addr())
	late.send(t, "SET k v")
	testkit.Eventually(t, "the proxy has swallowed what both sent", func() bool { return p.swallowed() == 2 })
	busy.mustBeSilent(t)
	late.mustBeSilent(t)
	direct.ask(t, "GET k", "(nil)")

	p.Blackhole(false)
	busy.mustEnd(t)
	late.mustEnd(t)
	idle.ask(t, "SET k v", "+OK") // it lost nothing
	direct.ask(t, "GET k", "v")
}

// swallowed is how many connections have lost bytes.
func (p *Proxy) swallowed() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.swallowed {
			n++
		}
	}
	return n
}

func TestBlackholeHidesThatTheServerDied(t *testing.T) {
	r, p, c, _ := proxied(t)
	p.Blackhole(true)
	r.Kill()
	c.mustBeSilent(t)
	dial(t, p.Addr()).mustBeSilent(t)
	p.Blackhole(false)
	c.mustEnd(t)
	dial(t, p.Addr()).mustEnd(t)
}

func TestRefuse(t *testing.T) {
	_, p, c, direct := proxied(t)
	p.Refuse(true)
	c.send(t, "SET k v")
	c.mustEnd(t)
	dial(t, p.Addr()).mustEnd(t)
	direct.ask(t, "GET k", "(nil)")
	p.Refuse(false)
	dial(t, p.Addr()).ask(t, "PING", "+PONG")
}

func TestCutAll(t *testing.T) {
	_, p, a, _ := proxied(t)
	b := dial(t, p.Addr())
	b.ask(t, "PING", "+PONG")
	p.CutAll()
	a.mustEnd(t)
	b.mustEnd(t)
	dial(t, p.Addr()).ask(t, "PING", "+PONG")
}

func TestDelay(t *testing.T) {
	_, p, c, _ := proxied(t)
	p.Delay(glance)
	start := time.Now()
	c.ask(t, "PING", "+PONG")
	if took := time.Since(start); took < glance {
		t.Errorf("answered after %v, want at least %v", took, glance)
	}
	p.Delay(time.Hour)
	c.send(t, "PING")
	c.mustBeSilent(t) // and ends with the test all the same
}

func TestWindow(t *testing.T) {
	tests := []struct {
		name   string
		pieces []string
		want   bool // whether the match ends in the last piece
	}{
		{"whole", []string{"xCOMMITx"}, true},
		{"in two", []string{"xCOM", "MITx"}, true},
		{"in three", []string{"C", "OMMI", "T"}, true},
		{"over already", []string{"COMMIT", "x"}, false},
		{"not", []string{"COM", "xMIT"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w window
			var got bool
			for _, piece := range tt.pieces {
				got = w.contains([]byte(piece), "COMMIT")
				w.add([]byte(piece))
			}
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
