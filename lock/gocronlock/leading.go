package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"firsttap/lock"
)

// Leading is a gocron Locker for jobs that the leader runs, beside others of the same scheduler that have a lease each: an
// Elector is for all the jobs of a scheduler. Safe for concurrent use.
type Leading struct{ leader *lock.Leader }

// NewLeading returns the Locker of jobs that run where leader leads.
func NewLeading(leader *lock.Leader) *Leading { return &Leading{leader} }

// Lock implements gocron.Locker. The errors are those of [lock.Leader.IsLeader].
func (l *Leading) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	if err := l.leader.IsLeader(ctx); err != nil {
		return nil, err
	}
	return lead{}, nil
}

// lead needs no end: the leader keeps it.
type lead struct{}

func (lead) Unlock(context.Context) error { return nil }

// Bind returns a task whose context ends with gocron's and when the lead is lost, and which keeps the lead for as long as
// it takes; see [lock.Leader.Campaign].
func (l *Leading) Bind(task func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error { return l.leader.Campaign(ctx, task) }
}
