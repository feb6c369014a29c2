package locktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"firsttap/lock"
)

// admin test the interface for operators.
var admin = []test{
	{name: "List", scope: Contract, needs: "Admin", run: (*suite).list},
	{name: "Show", scope: Contract, needs: "Admin", run: (*suite).show},
	{name: "Break", scope: Contract, needs: "Admin", run: (*suite).breakHeld},
	{name: "BreakFreesAtOnce", scope: Contract, needs: "Admin", run: (*suite).breakFreesAtOnce},
	{name: "BreakAFreeName", scope: Contract, needs: "Admin", run: (*suite).breakFree},
}

func (s *suite) list(t *testing.T) {
	mine, operator, all := s.open(t), s.open(t).(lock.Admin), similarNames()
	owners := map[string]string{}
	for _, n := range all {
		owners[n] = newOwner()
		if _, err := mine.Acquire(t.Context(), n, owners[n], long); err != nil {
			t.Fatal(err)
		}
	}
	free, over := newName(), newName()
	_ = mustAcquire(t, mine, free, long).Release(t.Context(), 0)
	mustAcquire(t, mine, over, s.MinTTL)
	var found []lock.Holder
	eventually(t, "an expired lease is not listed", func() (err error) {
		found, err = operator.List(t.Context())
		if slices.ContainsFunc(found, func(h lock.Holder) bool { return h.Name == over }) {
			err = errors.New("it is listed")
		}
		return err
	})
	if !slices.IsSortedFunc(found, func(a, b lock.Holder) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("not sorted: %v", found)
	}
	seen := map[string]int{}
	for _, h := range found {
		seen[h.Name]++
		if want, ours := owners[h.Name]; ours &&
			(h.Owner != want || !s.EndsWithConnection && (h.Remaining <= long-timeout || h.Remaining > long)) {
			t.Errorf("got %+v, want the owner %q", h, want)
		}
	}
	for _, n := range all {
		if seen[n] != 1 {
			t.Errorf("%q is listed %d times", n, seen[n])
		}
	}
	if seen[free] > 0 {
		t.Error("a released name is listed")
	}
}

func (s *suite) show(t *testing.T) {
	n, me, operator := newName(), newOwner(), s.open(t).(lock.Admin)
	if h, err := operator.Show(t.Context(), n); err != nil || h.Owner != "" || h.Name != n {
		t.Errorf("a name that was never held: %+v, %v", h, err)
	}
	g, err := s.open(t).Acquire(t.Context(), n, me, long)
	if err != nil {
		t.Fatal(err)
	}
	h, err := operator.Show(t.Context(), n)
	if err != nil || h.Name != n || h.Owner != me || h.Fence < g.Fence() {
		t.Errorf("got %+v, %v; want the owner %q and the fence %d", h, err, me, g.Fence())
	}
	if !s.EndsWithConnection && (h.Remaining <= long-timeout || h.Remaining > long) {
		t.Errorf("%s remain of %s", h.Remaining, long)
	}
	if err := g.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if h, err := operator.Show(t.Context(), n); err != nil || h.Owner != "" {
		t.Errorf("a name that was released: %+v, %v", h, err)
	}
}

// A broken lease's holder learns of it at the next renewal, and its fence is smaller than the operator's from the start.
func (s *suite) breakHeld(t *testing.T) {
	n, operator := newName(), s.open(t).(lock.Admin)
	hold := s.frequentlyRenewed()
	if s.MayRefuseAll {
		hold.RenewEvery = answerTimeout // a quorum is broken server by server, and renewals in between would restore the lease
	}
	lease := mustLease(t, s.locker(t), n, hold)
	broken, err := operator.Break(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if broken.Owner != lease.Owner() {
		t.Errorf("the former holder is %q, want %q", broken.Owner, lease.Owner())
	}
	why := waitLost(t, lease)
	wantErr(t, "why the lease ended", why, lock.ErrExpired)
	wantErr(t, "release", lease.Release(t.Context()), lock.ErrExpired)
	next := mustAcquire(t, s.open(t), n, long)
	if lease.Fence() >= broken.Fence || broken.Fence >= next.Fence() {
		t.Errorf("the holder's fence %d, the operator's %d, the next holder's %d: want them to grow", lease.Fence(), broken.Fence,
			next.Fence())
	}
}

// Once Break has returned, another process can acquire the name, also while operators look at all names.
func (s *suite) breakFreesAtOnce(t *testing.T) {
	mine, rival, operator, watcher := s.open(t), s.open(t), s.open(t).(lock.Admin), s.open(t).(lock.Admin)
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		for ctx.Err() == nil {
			_, _ = watcher.List(ctx)
		}
	})
	for range 10 {
		n := newName()
		mustAcquire(t, mine, n, long)
		if _, err := operator.Break(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		mustBeFreed(t, rival, n)
	}
}

// mustBeFreed is mustBeFree while operators look at all names. A look that began before the name was freed may still lock the row that
// [lock.Rows] has of it; a refusal then names nobody.
func mustBeFreed(t testing.TB, strategy lock.Strategy, name string) {
	t.Helper()
	eventually(t, name+" is free", func() error {
		g, err := strategy.Acquire(t.Context(), name, newOwner(), long)
		var held *lock.HeldError
		switch {
		case errors.As(err, &held) && held.Owner == "":
			return err
		case err != nil:
			t.Fatalf("acquire %s: %v", name, err)
		}
		return g.Release(t.Context(), 0)
	})
}

// Breaking a free name is no error: it raises the fence above that of the last holder.
func (s *suite) breakFree(t *testing.T) {
	n, operator := newName(), s.open(t).(lock.Admin)
	strategy := s.open(t)
	g := mustAcquire(t, strategy, n, long)
	if err := g.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	last := g.Fence()
	for range 2 {
		broken, err := operator.Break(t.Context(), n)
		if err != nil || broken.Owner != "" || broken.Fence <= last {
			t.Errorf("got %+v, %v; want no owner, and a fence larger than %d", broken, err, last)
		}
		last = broken.Fence
	}
	if g := mustAcquire(t, strategy, n, long); g.Fence() <= last {
		t.Errorf("the next holder's fence is %d, want more than %d", g.Fence(), last)
	}
}
