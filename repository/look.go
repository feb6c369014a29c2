package repository

import (
	"context"
	"time"

	"firsttap/outbox"
)

// look is what waits in the database. Its times are by the database's clock; a zero time says that nothing waits.
type look struct {
	// ReadAt is when the answer had arrived, by this process's clock; Now is the database's time in it.
	ReadAt, Now time.Time
	// Events, Notifications and Topics are when the next one is due for a relay.
	Events, Notifications, Topics time.Time
	// Run is when the next run may begin that was requested, or whose instance died.
	Run time.Time
	// Expiry is when the next offer ends, Work when the next accepted work starts.
	Expiry, Work time.Time
}

// looks holds the latest look. All parts of the process share those of its scheduler, so that an idle process sends one statement a
// second.
type looks struct {
	looking chan struct{} // holds one element while a look is under way
	latest  look
}

func newLooks() looks { return looks{looking: make(chan struct{}, 1)} }

// maxLookAge is how old a shared look may be: a little more than the time between two looks of the scheduler.
const maxLookAge = 1200 * time.Millisecond

// look returns a look that is younger than maxAge. ErrUnavailable.
func (s *Store) look(ctx context.Context, maxAge time.Duration) (look, error) {
	select {
	case s.looks.looking <- struct{}{}:
		defer func() { <-s.looks.looking }()
	case <-ctx.Done():
		return look{}, unavailable(ctx.Err())
	}
	if l := s.looks.latest; !l.ReadAt.IsZero() && time.Since(l.ReadAt) < maxAge {
		return l, nil
	}
	l, err := s.readLook(ctx)
	if err == nil {
		s.looks.latest = l
	}
	return l, err
}

// readLook reads the first row of each index that is sorted by the time at which rows become due.
func (s *Store) readLook(ctx context.Context) (look, error) {
	force := s.dialect.forceIndex
	first := func(column, table, index, where string) string {
		return "(SELECT " + column + " FROM " + table + force(index) + " WHERE " + where + " ORDER BY " + column + " LIMIT 1), "
	}
	var readOnly bool
	var now int64
	var events, notifications, topics, expiry, work, run *int64
	err := s.lookPool.WithContext(ctx).Raw("SELECT "+
		first("next_at", "outbox", "ix_outbox_due", "state = 0")+
		first("next_at", "notifications", "ix_notifications_due", "state = 0")+
		first("next_at", "topics", "ix_topics_due", "state = 0")+
		first("expires_at", "dispatches", "ix_dispatches_expiry", "status = 'PENDING'")+
		first("work_starts_at", "dispatches", "ix_dispatches_work", "status = 'ACCEPTED' AND work_starts_at > "+s.dialect.now())+
		"(SELECT MIN(CASE r.status WHEN 'QUEUED' THEN 0 ELSE r.alive_until END) FROM jobs j CROSS JOIN job_runs r"+force("ix_job_runs_open")+
		" WHERE r.job = j.name AND r.status IN ?), "+s.dialect.now()+", "+s.dialect.readOnly, unfinished).
		Row().Scan(&events, &notifications, &topics, &expiry, &work, &run, &now, &readOnly)
	switch {
	case err != nil:
		return look{}, unavailable(err)
	case readOnly:
		s.dialect.invalidateLookConns()
		return look{}, unavailable(errStaleRead)
	}
	at := func(us *int64) time.Time {
		if us == nil {
			return time.Time{}
		}
		return fromMicros(*us)
	}
	return look{
		ReadAt: time.Now(), Now: fromMicros(now), Events: at(events), Notifications: at(notifications), Topics: at(topics),
		Run: at(run), Expiry: at(expiry), Work: at(work),
	}, nil
}

// Due returns when the relay has to lease rows next, as known about a second ago. ErrUnavailable.
func (o *Outbox) Due(ctx context.Context) (outbox.Due, error) {
	l, err := o.look(ctx, maxLookAge)
	local := func(at time.Time) time.Time {
		if at.IsZero() {
			return at
		}
		return l.ReadAt.Add(at.Sub(l.Now))
	}
	return outbox.Due{Events: local(l.Events), Notifications: local(l.Notifications), Topics: local(l.Topics)}, err
}

// NextOpenRun looks now, and returns when the next run may begin that was requested or whose instance died, by the database's clock;
// the zero time if there is no such run. ErrUnavailable.
func (s *Store) NextOpenRun(ctx context.Context) (time.Time, error) {
	l, err := s.look(ctx, 0)
	return l.Run, err
}

// NextExpiry returns when the next offer ends, by the database's clock and as known about a second ago; the zero time if there is no
// offer. ErrUnavailable.
func (s *Store) NextExpiry(ctx context.Context) (time.Time, error) {
	l, err := s.look(ctx, maxLookAge)
	return l.Expiry, err
}

// NextWork returns when the next accepted work starts, by the database's clock and as known about a second ago; the zero time if no
// work lies ahead. ErrUnavailable.
func (s *Store) NextWork(ctx context.Context) (time.Time, error) {
	l, err := s.look(ctx, maxLookAge)
	return l.Work, err
}
