package locktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// leaders test elections.
var leaders = []test{
	{name: "OneLeads", run: (*suite).oneLeads},
	{name: "TheLeadIsKept", run: (*suite).theLeadIsKept},
	{name: "ALongRunKeepsTheLead", run: (*suite).longRun},
	{name: "Resign", run: (*suite).resign},
	{name: "CampaignUntilShutdown", run: (*suite).campaignUntilShutdown},
	{name: "ACampaignOfSeveral", run: (*suite).severalRuns},
	{name: "TheLeadIsLost", needs: "Admin", run: (*suite).leadIsLost},
	{name: "ALeadThatWasLost", needs: "Admin", run: (*suite).leadAfterLoss},
}

// leader returns a candidate that does not wait, on a Locker of its own.
func (s *suite) leader(t *testing.T, name string) *lock.Leader {
	return s.leaderFor(t, name, 0, s.renewableTTL())
}

func (s *suite) leaderFor(t *testing.T, name string, wait, lease time.Duration) *lock.Leader {
	l := s.locker(t).Leader(name, wait, lease)
	t.Cleanup(func() { _ = l.Resign(context.Background()) })
	return l
}

func doNothing(context.Context) error { return nil }

// Of several candidates that campaign at once, one leads, and it stays the leader.
func (s *suite) oneLeads(t *testing.T) {
	n := newName()
	candidates := []*lock.Leader{s.leaderFor(t, n, 0, long), s.leaderFor(t, n, 0, long), s.leaderFor(t, n, 0, long)}
	var first *lock.Leader
	for range 3 {
		var mu sync.Mutex
		var running sync.WaitGroup
		var ran []*lock.Leader
		for _, c := range candidates {
			running.Go(func() {
				err := c.Campaign(t.Context(), func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, c)
					return nil
				})
				if err != nil && !errors.Is(err, lock.ErrHeld) {
					t.Errorf("campaign: %v", err)
				}
			})
		}
		running.Wait()
		switch {
		case first == nil && s.MayRefuseAll && len(ran) == 0:
		case len(ran) != 1:
			t.Errorf("%d of %d ran", len(ran), len(candidates))
		case first == nil:
			first = ran[0]
		case ran[0] != first:
			t.Error("the leader changed")
		}
	}
}

// A candidate whose clock is late does not run the same slot: it can lead only after the leader was idle for a lease.
func (s *suite) theLeadIsKept(t *testing.T) {
	n, lease := newName(), s.renewableTTL()
	mine, rival := s.leader(t, n), s.leaderFor(t, n, timeout, lease)
	var ended time.Time
	if err := mine.Campaign(t.Context(), func(context.Context) error { ended = time.Now(); return errOfWork }); !errors.Is(err, errOfWork) {
		t.Fatal(err)
	}
	wantErr(t, "another candidate", s.leader(t, n).Campaign(t.Context(), doNothing), lock.ErrHeld)
	if err := rival.Campaign(t.Context(), func(context.Context) error {
		s.happenedAt(t, "the rival's run", time.Now(), ended.Add(lease))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "the former leader", mine.Campaign(t.Context(), doNothing), lock.ErrHeld)
}

// A run keeps the lead for as long as it takes, and each keeps it for a lease after its end.
func (s *suite) longRun(t *testing.T) {
	n, lease := newName(), s.keepableTTL()
	mine, rival := s.leaderFor(t, n, 0, lease), s.leaderFor(t, n, 0, lease)
	err := mine.Campaign(t.Context(), func(ctx context.Context) error {
		mustNotHappen(t, lease+lease/2, "the lead was lost", ctx.Done())
		wantErr(t, "another candidate", rival.Campaign(t.Context(), doNothing), lock.ErrHeld)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustStayHeld(t, s.open(t), n, lease/2)
	asked := time.Now()
	if err := mine.Campaign(t.Context(), doNothing); err != nil { // keeps the lead for a lease from now
		t.Fatal(err)
	}
	if err := s.leaderFor(t, n, timeout, lease).Campaign(t.Context(), func(context.Context) error {
		s.happenedAt(t, "the rival's run", time.Now(), asked.Add(lease))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// After Resign, another candidate can lead at once, and the former leader can lead again.
func (s *suite) resign(t *testing.T) {
	n := newName()
	mine, rival := s.leaderFor(t, n, 0, long), s.leaderFor(t, n, 0, long)
	for range 2 {
		if err := mine.Campaign(t.Context(), doNothing); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "another candidate", rival.Campaign(t.Context(), doNothing), lock.ErrHeld)
		if err := mine.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		if err := rival.Campaign(t.Context(), doNothing); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := rival.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// When its context ends, a leader stops its work and then releases the lead at once.
func (s *suite) campaignUntilShutdown(t *testing.T) {
	n := newName()
	mine, rival := s.leaderFor(t, n, 0, long), s.leaderFor(t, n, timeout, long)
	ctx, stop := context.WithCancel(t.Context())
	running, done := make(chan bool), make(chan error, 1)
	go func() {
		done <- mine.Campaign(ctx, func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	receive(t, "the run", running)
	stop()
	wantErr(t, "campaign", receive(t, "the end of the run", done), context.Canceled)
	if err := rival.Campaign(t.Context(), doNothing); err != nil {
		t.Error(err)
	}
}

// Several runs share one lead. If one ends early, the others keep it.
func (s *suite) severalRuns(t *testing.T) {
	n := newName()
	mine := s.leaderFor(t, n, 0, long)
	running, finish, done := make(chan context.Context), make(chan bool), make(chan error, 1)
	go func() {
		done <- mine.Campaign(t.Context(), func(ctx context.Context) error {
			running <- ctx
			<-finish
			return context.Cause(ctx)
		})
	}()
	other := receive(t, "the run", running)
	ctx, stop := context.WithCancel(t.Context())
	err := mine.Campaign(ctx, func(context.Context) error { stop(); return nil })
	if err != nil {
		t.Errorf("the run that gave up: %v", err)
	}
	mustNotHappen(t, quiet, "the other run was ended", other.Done())
	mustBeHeld(t, s.open(t), n)
	close(finish)
	if err := receive(t, "the end of the run", done); err != nil {
		t.Errorf("the other run: %v", err)
	}
}

func (s *suite) leadIsLost(t *testing.T) {
	n, operator := newName(), s.open(t).(lock.Admin)
	mine := s.leader(t, n)
	err := mine.Campaign(t.Context(), func(ctx context.Context) error {
		if _, err := operator.Break(t.Context(), n); err != nil {
			t.Error(err)
		}
		receive(t, "the end of the work", ctx.Done())
		wantErr(t, "the work's cause", context.Cause(ctx), lock.ErrLost)
		return errOfWork
	})
	wantErr(t, "campaign", err, lock.ErrLost)
	wantErr(t, "campaign", err, errOfWork)
}

// A leader that lost the lead while it was idle can lead again.
func (s *suite) leadAfterLoss(t *testing.T) {
	n, operator := newName(), s.open(t).(lock.Admin)
	mine, rival := s.leader(t, n), s.open(t)
	if err := mine.Campaign(t.Context(), doNothing); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Break(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	g := mustAcquire(t, rival, n, long)
	eventually(t, "the lead is lost", func() error {
		if err := mine.Campaign(t.Context(), doNothing); !errors.Is(err, lock.ErrHeld) {
			return errors.Join(errors.New("it leads"), err)
		}
		return nil
	})
	if err := g.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := mine.Campaign(t.Context(), doNothing); err != nil {
		t.Error(err)
	}
}
