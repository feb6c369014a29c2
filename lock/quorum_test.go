package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/redisclient"
	"firsttap/servertest"
	"firsttap/testkit"
)

// electorate is three servers, each behind a link of its own.
type electorate struct {
	servers []*servertest.Redis
	links   []*servertest.Proxy
	direct  []redis.UniversalClient
	nodes   []*Redis // by way of the links
	quorum  *Quorum
}

const nodeTimeout = 500 * time.Millisecond

func newElectorate(t *testing.T) *electorate {
	t.Helper()
	e := &electorate{}
	for range 3 {
		e.add(t, servertest.StartRedis(t))
	}
	e.quorum = quorumOf(t, e.nodes...)
	return e
}

func (e *electorate) add(t *testing.T, server *servertest.Redis) {
	t.Helper()
	link := servertest.StartProxy(t, server.Addr())
	e.servers, e.links = append(e.servers, server), append(e.links, link)
	e.direct = append(e.direct, client(t, server.URL()))
	e.nodes = append(e.nodes, NewRedis(client(t, link.URL(server.URL())), Tagged("lock")))
}

func client(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	c, err := redisclient.Dial(url, nodeTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func quorumOf(t *testing.T, nodes ...*Redis) *Quorum {
	t.Helper()
	q, err := NewQuorum(nodes...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// another is the quorum of another client, straight to the servers.
func (e *electorate) another(t *testing.T) *Quorum {
	t.Helper()
	var nodes []*Redis
	for _, direct := range e.direct {
		nodes = append(nodes, NewRedis(direct, Tagged("lock")))
	}
	return quorumOf(t, nodes...)
}

// votesFor is who has the vote of each server for name.
func (e *electorate) votesFor(t *testing.T, name string) (owners [3]string) {
	t.Helper()
	for i, direct := range e.direct {
		h, _ := NewRedis(direct, Tagged("lock")).Show(t.Context(), name) // one that is away has voted for nobody
		owners[i] = h.Owner
	}
	return owners
}

// unanimous waits until every server has voted for the lease.
func (e *electorate) unanimous(t *testing.T, lease *Lease) {
	t.Helper()
	mine := [3]string{lease.Owner(), lease.Owner(), lease.Owner()}
	testkit.Eventually(t, "all have voted", func() bool { return e.votesFor(t, lease.Name()) == mine })
}

func newLocker(t *testing.T, s Strategy) *Locker {
	t.Helper()
	l := New(s, Options{Who: "tester"})
	t.Cleanup(l.Close)
	return l
}

func renewedOften() Hold {
	return Hold{TTL: time.Minute, Every: 20 * time.Millisecond, AtMost: time.Hour}
}

// whileAway is what holds while one of three servers can't be used, and after it can again.
var whileAway = map[string]struct{ begin, end func(*electorate, int) }{
	"killed":      {func(e *electorate, i int) { e.servers[i].Kill() }, func(e *electorate, i int) { e.servers[i].Start() }},
	"frozen":      {func(e *electorate, i int) { e.servers[i].Freeze() }, func(e *electorate, i int) { e.servers[i].Thaw() }},
	"partitioned": {func(e *electorate, i int) { e.links[i].Blackhole(true) }, func(e *electorate, i int) { e.links[i].Blackhole(false) }},
	"flushed":     {func(e *electorate, i int) { e.direct[i].FlushAll(context.Background()) }, func(*electorate, int) {}},
}

func TestQuorumGoesOnWithoutOne(t *testing.T) {
	for what, fault := range whileAway {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newElectorate(t)
			l, hold := newLocker(t, e.quorum), Renewed(time.Second, time.Minute)
			lease, err := l.Acquire(t.Context(), "before", hold)
			if err != nil {
				t.Fatal(err)
			}
			e.unanimous(t, lease) // or the one that is flushed might be one of two
			fault.begin(e, 1)
			began := time.Now()
			during, err := l.Acquire(t.Context(), "during", hold)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took >= nodeTimeout {
				t.Errorf("an acquisition waited %s for the one that is away", took)
			}
			mustBe(t, "a rival", acquireErr(t, e.quorum, "before", "rival", time.Minute), ErrHeld)
			select {
			case <-lease.Context().Done():
				t.Errorf("lost: %v", context.Cause(lease.Context()))
			case <-during.Context().Done():
				t.Errorf("lost: %v", context.Cause(during.Context()))
			case <-time.After(1500 * time.Millisecond):
			}
			for _, lease := range []*Lease{lease, during} {
				mustBe(t, "release", lease.Release(t.Context()), nil)
				g, err := e.quorum.Acquire(t.Context(), lease.Name(), "rival", time.Minute)
				if err != nil {
					t.Fatalf("what was released: %v", err)
				}
				if g.Fence() <= lease.Fence() {
					t.Errorf("fence %d after %d", g.Fence(), lease.Fence())
				}
				mustBe(t, "the rival's release", g.Release(t.Context(), 0), nil)
			}
			fault.end(e, 1)
		})
	}
}

// Nobody can tell, though some server says that it is held, or that it is not.
func TestQuorumWithoutTwoIsUnavailable(t *testing.T) {
	for what, fault := range whileAway {
		if what == "flushed" {
			continue // it answers, and nobody holds
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newElectorate(t)
			l := newLocker(t, e.quorum)
			lease, err := l.Acquire(t.Context(), "held", Renewed(time.Second, time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			fault.begin(e, 0)
			fault.begin(e, 2)
			for _, name := range []string{"held", "free"} {
				_, err := l.Acquire(t.Context(), name, Fixed(time.Minute))
				if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
					t.Errorf("%s: got %v, want %v", name, err, ErrUnavailable)
				}
			}
			<-lease.Context().Done()
			mustBe(t, "why the lease ended", context.Cause(lease.Context()), ErrUnreachable)
			for what, err := range map[string]error{
				"Show":  func() error { _, err := e.quorum.Show(t.Context(), "held"); return err }(),
				"List":  func() error { _, err := e.quorum.List(t.Context()); return err }(),
				"Break": func() error { _, err := e.quorum.Break(t.Context(), "broken"); return err }(),
			} {
				mustBe(t, what, err, ErrUnavailable)
			}
			fault.end(e, 0)
			fault.end(e, 2)
			mustBe(t, "release", lease.Release(t.Context()), ErrUnreachable)
			for _, name := range []string{"held", "free"} { // nothing is left behind
				becomesFree(t, e.quorum, name)
			}
		})
	}
}

// Ten who ask once get in each other's way, and one of them gets in all the same.
func TestQuorumElectsOneOfTen(t *testing.T) {
	e := newElectorate(t)
	const rounds, contenders = 20, 10
	clients := make([]*Quorum, contenders)
	for i := range clients {
		clients[i] = e.another(t)
	}
	won := 0
	for round := range rounds {
		name := fmt.Sprint("round", round)
		var mu sync.Mutex
		var winners []Grant
		testkit.Together(contenders, func(i int) {
			g, err := clients[i].Acquire(t.Context(), name, fmt.Sprint("owner", i), time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners = append(winners, g)
			} else if !errors.Is(err, ErrHeld) {
				t.Errorf("got %v, want %v", err, ErrHeld)
			}
		})
		if len(winners) > 1 {
			t.Errorf("%d of %d got in", len(winners), contenders)
		}
		won += len(winners)
	}
	// All may be refused, but that is rare.
	if won < rounds*9/10 {
		t.Errorf("somebody got in in %d rounds of %d", won, rounds)
	}
}

// A vote that is taken back late must not be one that counts: the next try of the same contender needs votes of its own.
func TestQuorumVoteThatIsTakenBackLate(t *testing.T) {
	e := newElectorate(t)
	others := [2]*Redis{NewRedis(e.direct[0], Tagged("lock")), NewRedis(e.direct[1], Tagged("lock"))}
	take(t, e.quorum, "warm", "up", time.Minute).Release(t.Context(), 0)
	for i := range 20 {
		name := fmt.Sprint("a", i)
		first, second := take(t, others[0], name, "x", time.Minute), take(t, others[1], name, "y", time.Minute)
		// The vote is split: the third server's is taken back, late.
		late := e.links[2].Hold(Tagged("lock").channel(name))
		type result struct {
			g   Grant
			err error
		}
		got := make(chan result, 1)
		go func() {
			g, err := e.quorum.Acquire(t.Context(), name, "contender", time.Minute)
			got <- result{g, err}
		}()
		select {
		case <-late.Reached():
		case r := <-got:
			if r.err == nil {
				t.Fatal("got in although two others have a vote each")
			}
			got <- r
		}
		mustBe(t, "release", first.Release(t.Context(), 0), nil)
		r := <-got
		late.Release()
		mustBe(t, "release", second.Release(t.Context(), 0), nil)
		if r.err != nil {
			continue // refused: its own vote, not taken back yet, stood in its way
		}
		rivals, end := e.another(t), time.After(50*time.Millisecond) // for what is late to arrive
		for asking := true; asking; {
			if rival, err := rivals.Acquire(t.Context(), name, "rival", time.Minute); err == nil {
				t.Fatalf("two have the name: fences %d and %d; the votes are %v", r.g.Fence(), rival.Fence(), e.votesFor(t, name))
			}
			select {
			case <-end:
				asking = false
			default:
			}
		}
	}
}

// Who is refused leaves no vote behind on a server that was slow, where it would count against the next one.
func TestQuorumLoserLeavesNoVote(t *testing.T) {
	e := newElectorate(t)
	take(t, e.quorum, "warm", "up", time.Minute).Release(t.Context(), 0)
	holder := [2]Grant{}
	for i := range holder { // has the majority, but not the third server
		holder[i] = take(t, NewRedis(e.direct[i], Tagged("lock")), "a", "holder", time.Minute)
	}
	slow := e.links[2].Hold("loser")
	mustBe(t, "the loser", acquireErr(t, e.quorum, "a", "loser", time.Minute), ErrHeld)
	<-slow.Reached()
	slow.Release()
	for i := range holder {
		mustBe(t, "release", holder[i].Release(t.Context(), 0), nil)
	}
	e.servers[0].Kill()
	becomesFree(t, e.quorum, "a") // the two others are enough
}

// One that does not answer costs an operator's question its time, and nothing else.
func TestQuorumShowsWithoutOne(t *testing.T) {
	e := newElectorate(t)
	take(t, e.quorum, "a", "me", time.Minute)
	e.servers[1].Freeze()
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout/5)
		h, err := e.quorum.Show(ctx, "a")
		if err != nil || h.Owner != "me" {
			t.Errorf("got %+v, %v", h, err)
		}
		if list, err := e.quorum.List(ctx); err != nil && !errors.Is(err, ErrUnavailable) || err == nil && len(list) != 1 {
			t.Errorf("got %v, %v", list, err)
		}
		cancel()
	}
	e.servers[1].Thaw()
}

func TestQuorumIsOdd(t *testing.T) {
	for n := range 6 {
		if _, err := NewQuorum(make([]*Redis, n)...); (err == nil) != (n == 3 || n == 5) {
			t.Errorf("%d servers: %v", n, err)
		}
	}
}
