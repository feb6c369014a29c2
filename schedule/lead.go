package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"firsttap/lock"
)

const (
	// leaderLock is the leader's lock. An instance waits leaderWait for it.
	leaderLock   = "jobs"
	leaderWait   = time.Second
	defaultLease = 3 * time.Second
	// maxSilence is how long the ledger may leave a leader's polls unanswered, before the leader gives the lead to an instance that may
	// reach the ledger.
	maxSilence = 10 * time.Second
	// A leader with a stuck job leads for stuckTerm, and then gives others yieldTime to take the lead.
	stuckTerm = time.Minute
	yieldTime = 10 * time.Second
)

// errUnfit says that this instance can't do the leader's work.
var errUnfit = errors.New("this instance does not stand for election")

// heard notes that the ledger answers.
func (s *Scheduler) heard() {
	now := time.Now()
	s.heardAt.Store(&now)
}

// unfit returns why this instance can do none of the leader's work, nil if it can. It must not lead then: nobody else would do the work.
func (s *Scheduler) unfit() error {
	if silence := time.Since(*s.heardAt.Load()); silence > maxSilence {
		return fmt.Errorf("%w: the ledger has not answered it for %s", errUnfit, silence.Round(time.Second))
	}
	return nil
}

// hampered returns why this instance can't do some of the leader's work, nil if it can do all.
func (s *Scheduler) hampered() error {
	for _, j := range s.jobs {
		if j.OnLeader && j.stuck.Load() >= maxStuck {
			return fmt.Errorf("job %s: %w", j.Name, errStuck)
		}
	}
	return nil
}

// campaign makes this instance the leader whenever it is fit and no other instance leads. Without jobs for the leader it returns at once.
func (s *Scheduler) campaign(ctx context.Context) {
	if !slices.ContainsFunc(s.jobs, func(j *job) bool { return j.OnLeader }) {
		return
	}
	for unavailable := false; ctx.Err() == nil; {
		err := s.unfit()
		if err == nil {
			err = s.leader.Campaign(ctx, s.lead)
		}
		s.follow(err)
		switch {
		case errors.Is(err, lock.ErrHeld) || ctx.Err() != nil:
		case err == nil: // it has given up the lead
			pause(ctx, yieldTime)
		case errors.Is(err, lock.ErrLost):
			s.Log.Warn("this instance has lost the lead; another instance may run the leader's jobs", "error", err)
		default:
			if !unavailable && !errors.Is(err, errUnfit) {
				s.Log.Warn("leader lock unavailable; the election is retried until there is a leader", "lock", leaderLock, "error", err)
			}
			pause(ctx, s.PollInterval)
		}
		unavailable = errors.Is(err, lock.ErrUnavailable)
	}
}

// lead lets the leader's jobs run here until the lead is lost, or until another instance should lead.
func (s *Scheduler) lead(leading context.Context) error {
	s.Log.Info("this instance is elected leader; it runs the leader's jobs until it loses the lead")
	s.follows.Store(nil)
	s.checkLedger()
	for began := time.Now(); pause(leading, s.PollInterval); {
		err := s.unfit()
		if err == nil && time.Since(began) > stuckTerm {
			err = s.hampered()
		}
		if err != nil {
			s.Log.Warn("this instance gives up the lead; another instance can be elected when the lease ends", "error", err)
			return nil
		}
	}
	return nil
}

// follow records that this instance does not lead: because it can't, or else because another instance does.
func (s *Scheduler) follow(err error) {
	if !errors.Is(err, errUnfit) && !errors.Is(err, lock.ErrUnavailable) {
		err = &lock.HeldError{}
	}
	s.follows.Store(&err)
}

// resign lets another instance lead at once, now that nothing runs here.
func (s *Scheduler) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), s.GracePeriod)
	defer cancel()
	if err := s.leader.Resign(ctx); err != nil {
		s.Log.Warn("lead not released; another instance can be elected when the lease expires", "error", err)
	}
}
