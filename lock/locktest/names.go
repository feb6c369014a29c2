package locktest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/lock"
)

// names test which names are valid and distinct, and what a watch announces.
var names = []test{
	{name: "Independent", scope: Contract, run: (*suite).independent},
	{name: "TooLong", scope: Contract, run: (*suite).tooLong},
	{name: "Invalid", run: (*suite).invalid},
	{name: "Watch", scope: Contract, needs: "Watcher", run: (*suite).watch},
	{name: "WatchAfterBreak", scope: Contract, needs: "Watcher Admin", run: (*suite).watchAfterBreak},
}

// similarNames are names that a server could truncate, fold, read as a pattern, or confuse with its own keys.
func similarNames() []string {
	n := strings.ToLower(newName()[:20])
	longest := n + strings.Repeat("x", lock.MaxNameLength-len(n)-1)
	return []string{
		n, strings.ToUpper(n), n + ".", n + ":", n + ":fence", n + ":freed", n + "*", n + "?", n + "%", n + "_", n + `\`, n + "'", n + `"`,
		n + "[a]", n + "%s", n + "&", n + "/1", longest + "1", longest + "2", longest,
	}
}

// The holder of one name does not block other names.
func (s *suite) independent(t *testing.T) {
	mine, rivals, all := s.open(t), s.open(t), similarNames()
	grants := make([]lock.Grant, len(all))
	for i, n := range all {
		grants[i] = mustAcquire(t, mine, n, long)
	}
	for i, n := range all {
		mustBeHeld(t, rivals, n)
		if err := grants[i].Extend(t.Context(), long); err != nil {
			t.Errorf("extend %q: %v", n, err)
		}
	}
	for i, n := range all {
		if err := grants[i].Release(t.Context(), 0); err != nil {
			t.Errorf("release %q: %v", n, err)
		}
		mustBeFree(t, rivals, n)
		for _, other := range all[i+1:] {
			if t.Failed() {
				return
			}
			if i == 0 {
				mustBeHeld(t, rivals, other)
			}
		}
	}
}

// A name that is too long is refused and not truncated, so that two names with the same beginning are different.
func (s *suite) tooLong(t *testing.T) {
	n := newName()
	begin := n + strings.Repeat("x", lock.MaxNameLength-len(n))
	first, err := s.open(t).Acquire(t.Context(), begin+"1", newOwner(), long)
	second, err2 := s.open(t).Acquire(t.Context(), begin+"2", newOwner(), long)
	for i, g := range []lock.Grant{first, second} {
		err := []error{err, err2}[i]
		switch {
		case err == nil:
			_ = g.Release(t.Context(), 0)
		case !errors.Is(err, lock.ErrInvalid):
			t.Errorf("got %v, want none or %v", err, lock.ErrInvalid)
		}
	}
}

// Acquire and Do refuse invalid arguments without a request.
func (s *suite) invalid(t *testing.T) {
	l := s.locker(t)
	fixed := lock.Fixed(long)
	for what, try := range map[string]struct {
		name string
		hold lock.Hold
	}{
		"no name":              {"", fixed},
		"a long name":          {strings.Repeat("x", lock.MaxNameLength+1), fixed},
		"a long name in bytes": {strings.Repeat("é", lock.MaxNameLength/2+1), fixed},
		"a space":              {"a b", fixed},
		"a line":               {"a\n", fixed},
		"a NUL":                {"a\x00", fixed},
		"a letter":             {"ä", fixed},
		"bytes":                {"\xff", fixed},
		"a brace":              {"a{b}", fixed},
		"no TTL":               {newName(), lock.Hold{}},
		"a short TTL":          {newName(), lock.Fixed(time.Millisecond)},
		"a negative time":      {newName(), lock.Hold{TTL: long, Wait: -1}},
		"late renewal":         {newName(), lock.Hold{TTL: long, RenewEvery: long, AtMost: long}},
		"no end":               {newName(), lock.Hold{TTL: long, RenewEvery: long / 3}},
		"a beat unheard":       {newName(), lock.Hold{TTL: long, Heartbeat: time.Second}},
		"a fast beat":          {newName(), lock.Hold{TTL: long, RenewEvery: time.Minute, Heartbeat: time.Second}},
		"at least too long":    {newName(), lock.Between(2*long, long)},
	} {
		_, err := l.Acquire(t.Context(), try.name, try.hold)
		wantErr(t, what+", Acquire", err, lock.ErrInvalid)
		wantErr(t, what+", Do", l.Do(t.Context(), try.name, try.hold, func(context.Context) error {
			t.Errorf("%s: the work ran", what)
			return nil
		}), lock.ErrInvalid)
	}
	if longest := strings.Repeat("x", lock.MaxNameLength-26) + newName()[:26]; len(longest) == lock.MaxNameLength {
		mustRelease(t, mustLease(t, l, longest, fixed))
	} else {
		t.Errorf("%d bytes", len(longest))
	}
}

// A watch receives a value when it has begun, and after each release.
func (s *suite) watch(t *testing.T) {
	mine, watching, n := s.open(t), s.open(t), newName()
	freed, stop, err := watching.(lock.Watcher).Watch(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	// Before the second watch, to which the news that the first has begun might come as well.
	receive(t, "the beginning of the watch", freed)
	again, stopAgain, err := watching.(lock.Watcher).Watch(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, "the beginning of the second watch", again)
	for i := range 3 {
		g := mustAcquire(t, mine, n, long)
		other := mustAcquire(t, mine, newName(), long)
		_ = other.Release(t.Context(), 0)
		mustNotHappen(t, quiet, "notified of another name's release", freed)
		if err := g.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		receive(t, "the release", freed)
		if i < 2 {
			receive(t, "the release, in the second watch", again)
		}
		if i == 1 {
			stopAgain()
			stopAgain()
		}
	}
	mustNotHappen(t, quiet, "notified after the watch was stopped", again)
}

func (s *suite) watchAfterBreak(t *testing.T) {
	strategy, n := s.open(t), newName()
	mustAcquire(t, strategy, n, long)
	freed, stop, err := strategy.(lock.Watcher).Watch(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	receive(t, "the beginning of the watch", freed)
	if _, err := strategy.(lock.Admin).Break(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	receive(t, "the break", freed)
}
