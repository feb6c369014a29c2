package firebase

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

func (p *place) user(uid string, more ...any) {
	u := map[string]any{"localId": uid, "validSince": "0"}
	for i := 0; i < len(more); i += 2 {
		u[more[i].(string)] = more[i+1]
	}
	p.google.set(func() { p.google.users[uid] = u })
}

// TestRefusedWithinAMinute: any change of the user takes effect within a minute, whenever the last lookup was.
func TestRefusedWithinAMinute(t *testing.T) {
	for name, change := range map[string]func(p *place, issued time.Time){
		"disabled":    func(p *place, _ time.Time) { p.user("kim", "disabled", true) },
		"deleted":     func(p *place, _ time.Time) { p.google.set(func() { delete(p.google.users, "kim") }) },
		"signed out":  func(p *place, _ time.Time) { p.user("kim", "validSince", "9999999999") },
		"one second":  func(p *place, issued time.Time) { p.user("kim", "validSince", itoa(issued.Unix()+1)) },
		"another one": func(p *place, _ time.Time) { p.google.set(func() { p.google.users["kim"] = p.google.users["lee"] }) },
	} {
		for _, every := range []time.Duration{time.Second, 20 * time.Second, 29 * time.Second, 59 * time.Second, time.Minute} {
			p := newPlace(t, true)
			p.user("kim")
			p.user("lee")
			token := p.token("kim")
			p.is(name+", before", token, "kim")
			change(p, p.clock.now().Add(-5*time.Second)) // as claims says
			began := p.clock.now()
			for p.clock.now().Sub(began) < time.Minute {
				p.clock.pass(every)
				if every == time.Minute {
					continue // no request in between: the first one is refused
				}
				p.UID(t.Context(), token)
				p.settled()
			}
			p.fails(name+", after a minute", token, ErrRefused)
			p.is(name+": somebody else", p.token("lee"), "lee")
		}
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// TestSignedOutSince: a token issued in the second of the sign-out is accepted, as the user may have signed in again in it.
func TestSignedOutSince(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim", "validSince", itoa(p.clock.now().Unix()-5))
	p.is("issued in that second", p.token("kim"), "kim")
	p.user("lee", "validSince", itoa(p.clock.now().Unix()-4))
	p.fails("issued the second before", p.token("lee"), ErrRefused)
}

// TestWelcomeAgain: an enabled user is accepted again within a minute.
func TestWelcomeAgain(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim", "disabled", true)
	p.fails("disabled", p.token("kim"), ErrRefused)
	p.user("kim")
	p.clock.pass(time.Minute)
	p.is("enabled", p.token("kim"), "kim")
}

// TestLookups: concurrent requests share a lookup, and the next follows in the background after half a minute.
func TestLookups(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim")
	p.user("lee")
	p.is("the keys are known", p.token("lee"), "lee")
	<-p.google.entered
	<-p.google.entered
	before := p.google.times(lookups)
	p.crowd()
	testkit.Equal(t, "lookups for 20 requests", 1, p.google.times(lookups)-before)
	p.clock.pass(refreshAfter - time.Second)
	p.is("not yet again", p.token("kim"), "kim")
	p.settled()
	testkit.Equal(t, "lookups before it was time to", 1, p.google.times(lookups)-before)
	release := p.hold()
	p.clock.pass(time.Second)
	for range 20 {
		p.is("none waits for what is not old", p.token("kim"), "kim")
	}
	release()
	p.settled()
	testkit.Equal(t, "lookups", 2, p.google.times(lookups)-before)
}

// TestLookupsFail: the last known status counts, failures are logged and counted, and only the first request waits.
func TestLookupsFail(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim")
	p.user("bad", "disabled", true)
	p.is("before", p.token("kim"), "kim")
	p.fails("before", p.token("bad"), ErrRefused)
	p.google.set(func() { p.google.down = true })
	for range 10 {
		p.clock.pass(time.Minute)
		p.is("known as good", p.token("kim"), "kim")
		p.fails("known as disabled", p.token("bad"), ErrRefused)
		p.is("not known", p.token("new"), "new")
		p.settled()
	}
	if n := strings.Count(p.log.String(), "not looked up"); n < 1 || n > 10 {
		t.Errorf("logged %d times in ten minutes: %s", n, p.log)
	}
	testkit.Equal(t, "counted failures", 30, p.counted(p.counts.lookups, "failed"))
	release := p.hold()
	p.is("while Google hangs", p.token("new2"), "new2")
	testkit.Equal(t, "failures before the one that the request does not wait for", 30, p.counted(p.counts.lookups, "failed"))
	release()
	p.google.set(func() { p.google.down = false })
	p.settled()
	p.clock.pass(time.Minute)
	p.fails("back, and the user is unknown", p.token("new"), ErrRefused)
}

// TestClientHangsUp: a lookup goes on when the request that started it ends.
func TestClientHangsUp(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim", "disabled", true)
	token := p.token("kim")
	if _, err := p.verify(t.Context(), token); err != nil { // the keys are known
		t.Fatal(err)
	}
	<-p.google.entered
	release := p.hold()
	gone, hangUp := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.UID(gone, token) })
	<-p.google.entered
	hangUp()
	done.Wait()
	release()
	p.settled()
	p.fails("after all", token, ErrRefused)
	testkit.Equal(t, "lookups", 1, p.google.times(lookups))
}

// TestOneRefusedLookup: a rejected lookup of one user does not affect the status of others.
func TestOneRefusedLookup(t *testing.T) {
	p := newPlace(t, true)
	known := p.google.Config.Handler
	p.google.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), "odd") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		known.ServeHTTP(w, r)
	})
	p.user("kim")
	token := p.token("kim")
	p.is("before", token, "kim")
	p.user("kim", "disabled", true)
	p.user("lee", "disabled", true)
	p.clock.pass(30 * time.Minute)
	p.UID(t.Context(), p.token("odd"))
	p.settled()
	p.fails("disabled half an hour ago", token, ErrRefused)
	p.fails("disabled, and never seen here", p.token("lee"), ErrRefused)
}

// TestRealEmulator: changes of users in Firebase's own emulator take effect within a minute.
func TestRealEmulator(t *testing.T) {
	testkit.OnlyInAll(t)
	e := servertest.StartFirebaseAuth(t)
	for name, end := range map[string]func(uid string){
		"disabled": func(uid string) { e.Disable(uid, true) },
		"revoked":  func(uid string) { e.Revoke(uid, time.Now().Add(time.Minute).Unix()) },
		"deleted":  e.Delete,
	} {
		p := newEmulated(t, e.Addr())
		uid, token := e.SignUp(name + "@example.com")
		p.clock.pass(time.Second) // it may be the next one by now
		for range 2 {
			p.is(name+", before", token, uid)
		}
		end(uid)
		p.is(name+", looked up less than half a minute ago", token, uid)
		p.clock.pass(time.Minute)
		p.fails(name+", a minute ago", token, ErrRefused)
	}
}
