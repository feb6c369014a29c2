package firebase

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/auth"
	"firsttap/internal/testkit"
)

func (p *place) user(uid string, more ...any) {
	u := map[string]any{"localId": uid, "validSince": "0"}
	for i := 0; i < len(more); i += 2 {
		u[more[i].(string)] = more[i+1]
	}
	p.fake.set(func() { p.fake.users[uid] = u })
}

// TestRefusedWithinAMinute: any change of the user takes effect within a minute, whenever the last lookup was, and so does its end.
func TestRefusedWithinAMinute(t *testing.T) {
	for name, change := range map[string]func(p *place, issued time.Time){
		"disabled":    func(p *place, _ time.Time) { p.user("kim", "disabled", true) },
		"deleted":     func(p *place, _ time.Time) { p.fake.set(func() { delete(p.fake.users, "kim") }) },
		"signed out":  func(p *place, _ time.Time) { p.user("kim", "validSince", "9999999999") },
		"one second":  func(p *place, issued time.Time) { p.user("kim", "validSince", itoa(issued.Unix()+1)) },
		"another one": func(p *place, _ time.Time) { p.fake.set(func() { p.fake.users["kim"] = p.fake.users["lee"] }) },
	} {
		for _, every := range []time.Duration{time.Second, 20 * time.Second, 29 * time.Second, 59 * time.Second, time.Minute} {
			p := newPlace(t, true)
			began := p.clock.now()
			issued := began.Add(-5 * time.Second)            // as claims says
			p.user("kim", "validSince", itoa(issued.Unix())) // who signs out and in within a second is in
			p.user("lee")
			token := p.token("kim")
			p.is(name+", before", token, "kim")
			change(p, issued)
			for p.clock.now().Sub(began) < time.Minute {
				p.clock.pass(every)
				if every == time.Minute {
					continue // no request in between: the first one is refused
				}
				p.uid(t.Context(), token)
				p.settled()
			}
			p.fails(name+", after a minute", token, auth.ErrUnauthenticated)
			p.is(name+": somebody else", p.token("lee"), "lee")
			p.user("kim")
			p.clock.pass(time.Minute)
			p.is(name+", and welcome again", p.token("kim"), "kim")
		}
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// TestLookups: concurrent requests share a lookup, and the next follows in the background after half a minute.
func TestLookups(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim")
	p.user("lee")
	p.is("the keys are known", p.token("lee"), "lee")
	<-p.fake.entered
	<-p.fake.entered
	before := p.fake.times(lookups)
	p.crowd()
	testkit.Equal(t, "lookups for 20 requests", 1, p.fake.times(lookups)-before)
	p.clock.pass(refreshAfter - time.Second)
	p.is("not yet again", p.token("kim"), "kim")
	p.settled()
	testkit.Equal(t, "lookups before it was time to", 1, p.fake.times(lookups)-before)
	release := p.hold()
	p.clock.pass(time.Second)
	for range 20 {
		p.is("none waits for what is not old", p.token("kim"), "kim")
	}
	release()
	p.settled()
	testkit.Equal(t, "lookups", 2, p.fake.times(lookups)-before)
}

// TestLookupsFail: the last known status counts, failures are logged and counted, and only the first request waits.
func TestLookupsFail(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim")
	p.user("bad", "disabled", true)
	p.is("before", p.token("kim"), "kim")
	p.fails("before", p.token("bad"), auth.ErrUnauthenticated)
	p.fake.set(func() { p.fake.down = true })
	for range 10 {
		p.clock.pass(time.Minute)
		p.is("known as good", p.token("kim"), "kim")
		p.fails("known as disabled", p.token("bad"), auth.ErrUnauthenticated)
		p.is("not known", p.token("new"), "new")
		p.settled()
	}
	if n := strings.Count(p.log.String(), "not looked up"); n < 1 || n > 10 {
		t.Errorf("logged %d times in ten minutes: %s", n, p.log)
	}
	testkit.Equal(t, "counted failures", 30, counted(p.users.counts, "failed"))
	release := p.hold()
	p.is("while Google hangs", p.token("new2"), "new2")
	testkit.Equal(t, "failures before the one that the request does not wait for", 30, counted(p.users.counts, "failed"))
	release()
	p.fake.set(func() { p.fake.down = false })
	p.settled()
	p.clock.pass(time.Minute)
	p.fails("back, and the user is unknown", p.token("new"), auth.ErrUnauthenticated)
}

// TestClientHangsUp: a lookup goes on when the request that started it ends.
func TestClientHangsUp(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim", "disabled", true)
	token := p.token("kim")
	if _, err := p.Verify(t.Context(), token); err != nil { // the keys are known
		t.Fatal(err)
	}
	<-p.fake.entered
	release := p.hold()
	gone, hangUp := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.uid(gone, token) })
	<-p.fake.entered
	hangUp()
	done.Wait()
	release()
	p.settled()
	p.fails("after all", token, auth.ErrUnauthenticated)
	testkit.Equal(t, "lookups", 1, p.fake.times(lookups))
}

// TestOneRefusedLookup: a rejected lookup of one user does not affect the status of others.
func TestOneRefusedLookup(t *testing.T) {
	p := newPlace(t, true)
	p.user("kim")
	token := p.token("kim")
	p.is("before", token, "kim")
	p.user("kim", "disabled", true)
	p.user("lee", "disabled", true)
	p.clock.pass(30 * time.Minute)
	p.uid(t.Context(), p.token(oddUID))
	p.settled()
	p.fails("disabled half an hour ago", token, auth.ErrUnauthenticated)
	p.fails("disabled, and never seen here", p.token("lee"), auth.ErrUnauthenticated)
}
