//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

type jsonLog struct{ testkit.LogBuffer }

// drain returns the lines logged since the last drain.
func (l *jsonLog) drain() (all []map[string]any) {
	for line := range strings.Lines(l.Drain()) {
		var said map[string]any
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			panic(err)
		}
		all = append(all, said)
	}
	return all
}

func newSignIns(l SignInLimits, store SignInStore) (*SignIns, *jsonLog) {
	log := &jsonLog{}
	return NewSignIns(SignInOptions{Limits: l, Store: store, Now: time.Now, Log: slog.New(slog.NewJSONHandler(log, nil))}), log
}

// TestTheLogOfFailures: there is at most one line every two seconds, their sums add up, and there is none without failures.
func TestTheLogOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newSignIns(DefaultSignInLimits(), nil)
		stop := testkit.Run(t, s.Run)
		for i := range 10_000 { // in ten seconds
			r := SignInFailed
			if i >= 20 {
				r = SignInLimited
			}
			s.Record(AuthKey, "203.0.113.7", r)
			if i%100 == 0 {
				s.Record(AuthSession, "203.0.113.8", SignInFailed)
			}
			time.Sleep(time.Millisecond)
		}
		stop()
		all := log.drain()
		if len(all) < 5 || len(all) > 6 {
			t.Errorf("%d lines", len(all))
		}
		var failed, limited float64
		for _, l := range all {
			failed, limited = failed+l["failed"].(float64), limited+l["limited"].(float64)
			if l["level"] != "WARN" || l["most_from"] != "203.0.113.7" || l["addresses"] != 2.0 {
				t.Errorf("%v", l)
			}
		}
		if failed != 20+100 || limited != 9980 {
			t.Errorf("%v failed, %v limited", failed, limited)
		}
		stop = testkit.Run(t, s.Run)
		s.Record(AuthSession, "203.0.113.8", SignInOK)
		time.Sleep(time.Hour)
		stop()
		if all := log.drain(); len(all) != 0 {
			t.Errorf("%v", all)
		}
	})
}

// TestTheAuditOfFailures: an interval has entries for a few addresses, and one for the rest.
func TestTheAuditOfFailures(t *testing.T) {
	p := newPlace(t)
	s, log := newSignIns(DefaultSignInLimits(), p)
	for i := range 1000 {
		s.Record(AuthSession, fmt.Sprint("198.51.100.", i%100), SignInFailed)
		s.Record(AuthToken, fmt.Sprint("198.51.100.", i%100), SignInLimited)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.Run(ctx) // it writes the rest
	entries, _, err := p.Audit(t.Context(), dispatch.AuditQuery{Actor: dispatch.AuditUnknown, Page: dispatch.Page{Limit: 200}})
	if err != nil || len(entries) != maxAuditedAddresses+1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	sums := map[string]int{}
	for _, e := range entries {
		var d struct {
			Failed, Limited int
			Doors           map[string]int
		}
		if err := json.Unmarshal([]byte(e.Detail), &d); err != nil || e.Action != dispatch.AuditSignInRefused {
			t.Errorf("%+v: %v", e, err)
		}
		sums["failed"], sums["limited"] = sums["failed"]+d.Failed, sums["limited"]+d.Limited
		sums["session"], sums["token"] = sums["session"]+d.Doors["session"], sums["token"]+d.Doors["token"]
		if e.Target == otherAddresses {
			sums["others"] = d.Failed
		}
	}
	if want := "map[failed:1000 limited:1000 others:840 session:1000 token:1000]"; fmt.Sprint(sums) != want {
		t.Errorf("%v, want %s", sums, want)
	}
	log.drain()
	s.auditFailures(t.Context())
	p.mustCount(maxAuditedAddresses+1, "audit WHERE actor = 'unknown'")
	p.exec("CREATE TRIGGER broken BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END")
	s.Record(AuthKey, "198.51.100.1", SignInFailed)
	s.auditFailures(t.Context())
	if all := log.drain(); len(all) != 1 || all[0]["level"] != "WARN" {
		t.Errorf("sign-ins that can't be written: %v", all)
	}
}

// TestStrangersAreBounded: the memory for addresses is bounded.
func TestStrangersAreBounded(t *testing.T) {
	p := newPlace(t)
	l := DefaultSignInLimits()
	l.KeyTotal.Burst, l.TokenTotal.Burst = 1e9, 1e9
	s, _ := newSignIns(l, p)
	keys := NewKeys(p.Keys)
	for i := range 3 * maxAddresses {
		address := fmt.Sprint(i)
		for _, d := range []AuthMethod{AuthKey, AuthToken} {
			if _, ok := s.Reserve(d, address); !ok {
				t.Fatal("the first failure of an address is refused")
			}
			s.Record(d, address, SignInFailed)
		}
		keys.cache.unknown.Add(address, time.Now())
	}
	for what, n := range map[string]int{
		"buckets": s.keys.byAddress.Len() + s.tokens.byAddress.Len(), "told": len(s.logged.byAddress), "noted": len(s.audited.byAddress), "unknown keys": keys.cache.unknown.Len(),
	} {
		if n > 2*maxAddresses || n == 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if len(s.logged.byAddress) != maxLoggedAddresses+1 || len(s.audited.byAddress) != maxAuditedAddresses+1 {
		t.Errorf("%d addresses logged, %d audited", len(s.logged.byAddress), len(s.audited.byAddress))
	}
}

// TestAllowance: a bucket refills with time, and a refund restores a token.
func TestAllowance(t *testing.T) {
	now := time.Now()
	b := newAddressBuckets(FailureLimit{Rate: 0.5, Burst: 3}, FailureLimit{Rate: 10, Burst: 5})
	take := func(address string, want bool) time.Duration {
		t.Helper()
		wait, ok := b.reserve(address, now)
		if ok != want || ok == (wait > 0) {
			t.Errorf("%s: %s, %v", address, wait, ok)
		}
		return wait
	}
	for range 3 {
		take("a", true)
	}
	if wait := take("a", false); wait != 2*time.Second {
		t.Errorf("wait %s", wait)
	}
	take("b", true)
	take("b", true)
	if wait := take("c", false); wait != 100*time.Millisecond {
		t.Errorf("all: wait %s", wait)
	}
	b.refund("b")
	take("c", true)
	now = now.Add(2 * time.Second)
	take("a", true)
	take("a", false)
	now = now.Add(-time.Hour) // a clock that goes back changes nothing
	take("a", false)
	now = now.Add(time.Hour + time.Minute)
	for range 3 {
		take("a", true)
	}
	take("a", false)
	b.refund("nobody")
}

// apiKey stores a viewer's key, and returns the key.
func (p *place) apiKey(name string) string {
	p.t.Helper()
	_, key, err := NewKeys(p.Keys).Create(p.t.Context(), name, dispatch.Viewer, "")
	must(p.t, err)
	return key
}

// TestManyNewKeysAtTheStart: an instance with an empty cache accepts more valid keys at once than may fail.
func TestManyNewKeysAtTheStart(t *testing.T) {
	p := newPlace(t)
	secrets := make([]string, 60)
	for i := range secrets {
		secrets[i] = p.apiKey("one of many")
	}
	fresh := NewKeys(p.Keys)
	testkit.Together(len(secrets), func(k int) {
		mustBe(t, errorOf(fresh.Authenticate(t.Context(), secrets[k], func() bool { return false })), nil)
	})
}

// TestMoreKeysThanTheCacheHas: keys beyond the cache are found too.
func TestMoreKeysThanTheCacheHas(t *testing.T) {
	p := newPlace(t)
	first := p.apiKey("the oldest")
	for range 5 {
		p.apiKey("a newer one")
	}
	fresh := NewKeys(p.Keys)
	fresh.cache.limit = 3
	if k, err := fresh.Authenticate(t.Context(), first, nil); err != nil || k.Name != "the oldest" {
		t.Errorf("%+v, %v", k, err)
	}
	if n := len(fresh.cache.ids); n != 3 {
		t.Errorf("%d in the cache", n)
	}
	mustBe(t, errorOf(fresh.Authenticate(t.Context(), "nobody's", nil)), ErrUnauthenticated)
}
