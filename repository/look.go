package repository

import (
	"context"
	"sync/atomic"
	"time"

	"firsttap/outbox"
	"firsttap/repository/primary"
)

// look is what waits in the database. Its times are by the database's clock; a zero time says that nothing waits.
type look struct {
	// SentAt is before the statement was sent, ReadAt when the answer had arrived, by this process's clock; Now is the database's time in it.
	SentAt, ReadAt, Now time.Time
	// Events, Notifications and Topics are when the next one is due for a relay.
	Events, Notifications, Topics time.Time
	// Run is when the first run that is requested or under way may begin or be taken over.
	Run time.Time
	// Expiry is when the next offer ends, Work when the next accepted work starts.
	Expiry, Work time.Time
	// Webhooks is when the first delivery to an active endpoint is due, Unwritten that deliveries of events or of a replay are to be written.
	Webhooks  time.Time
	Unwritten bool
}

// looks holds the latest look. All parts of the process share those of its scheduler, so that an idle process sends one statement a
// second.
type looks struct {
	latest  atomic.Pointer[look] // nil after a look that failed
	looking chan struct{}        // holds one element while a look is under way
}

func newLooks() *looks { return &looks{looking: make(chan struct{}, 1)} }

// maxLookAge is how old a shared look may be: a little more than the time between two looks of the scheduler.
const maxLookAge = 1200 * time.Millisecond

// fresh returns the latest look if it is younger than maxAge, and nil otherwise.
func (k *looks) fresh(maxAge time.Duration) *look {
	if l := k.latest.Load(); l != nil && time.Since(l.ReadAt) < maxAge {
		return l
	}
	return nil
}

// look returns a look that is younger than maxAge. If it has to read one, that one tells of the runs of jobs. ErrUnavailable.
func (s *Store) look(ctx context.Context, maxAge time.Duration, jobs []string) (*look, error) {
	if l := s.looks.fresh(maxAge); l != nil {
		return l, nil
	}
	select {
	case s.looks.looking <- struct{}{}:
		defer func() { <-s.looks.looking }()
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
	if l := s.looks.fresh(maxAge); l != nil {
		return l, nil
	}
	l, err := s.readLook(ctx, jobs)
	s.looks.latest.Store(l)
	return l, err
}

// readLook reads the first row of each index that is sorted by the time at which rows become due.
func (s *Store) readLook(ctx context.Context, jobs []string) (*look, error) {
	first := func(column, table, index, where string) string {
		return "(SELECT " + column + " FROM " + table + " {force " + index + "} WHERE " + where + " ORDER BY " + column + " LIMIT 1), "
	}
	var readOnly bool
	var now int64
	var events, offers, own, ends, topics, expiry, work, run, delivery, queued, replay *int64
	sent := time.Now()
	err := s.watch.WithContext(primary.Unchecked(ctx)).Raw("SELECT "+
		first("next_at", "events", "ix_events_due", "next_at IS NOT NULL")+
		first("due_at", "notifications", "ix_notifications_due", "state = 0 AND priority = 1")+
		first("due_at", "notifications", "ix_notifications_due", "state = 0 AND priority = 2")+
		first("due_at", "notifications", "ix_notifications_due", "state = 0 AND priority = 3")+
		first("next_at", "topics", "ix_topics_due", "state = 0")+
		first("expires_at", "dispatches", "ix_dispatches_expiry", "status = 'PENDING'")+
		first("work_starts_at", "dispatches", "ix_dispatches_work", "status = 'ACCEPTED' AND work_starts_at > {now}")+
		"(SELECT MIN(CASE r.status WHEN 'QUEUED' THEN 0 ELSE r.alive_until END) FROM jobs j CROSS JOIN job_runs r {force ix_job_runs_open}"+
		" WHERE j.name IN ? AND r.job = j.name AND r.status IN ?), "+
		"(SELECT MIN("+firstDelivery+") FROM webhooks w WHERE w.status = 'ACTIVE'), (SELECT 1 FROM webhook_events LIMIT 1), "+
		"(SELECT 1 FROM webhooks WHERE status = 'ACTIVE' AND replay_until IS NOT NULL LIMIT 1), {now}, {read_only}", jobs, unfinished).
		Row().Scan(&events, &offers, &own, &ends, &topics, &expiry, &work, &run, &delivery, &queued, &replay, &now, &readOnly)
	switch {
	case err != nil:
		return nil, unavailable(err)
	case readOnly:
		return nil, s.staleLook()
	}
	at := func(us *int64) time.Time {
		if us == nil {
			return time.Time{}
		}
		return fromMicros(*us)
	}
	return &look{
		SentAt: sent, ReadAt: time.Now(), Now: fromMicros(now), Events: at(events), Notifications: at(earliest(offers, own, ends)),
		Topics: at(topics),
		Run:    at(run), Expiry: at(expiry), Work: at(work), Webhooks: at(delivery), Unwritten: queued != nil || replay != nil,
	}, nil
}

// earliest returns the first of the times that are not nil.
func earliest(times ...*int64) (first *int64) {
	for _, us := range times {
		if first == nil || us != nil && *us < *first {
			first = us
		}
	}
	return first
}

// staleLook closes the connections for looks, as one of them led to a server that takes no writes, and returns ErrUnavailable.
func (s *Store) staleLook() error {
	s.dialect.leaveServer()
	return unavailable(errStaleRead)
}

// local converts a time by the database's clock into one by this process's clock; a zero time stays one.
func (l *look) local(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return l.ReadAt.Add(at.Sub(l.Now))
}

// Due returns when the relay has to lease rows next, as known a second ago at most while the scheduler runs. ErrUnavailable.
func (o *Outbox) Due(ctx context.Context) (outbox.Due, error) {
	l, err := o.look(ctx, maxLookAge, nil)
	if err != nil {
		return outbox.Due{}, err
	}
	local := l.local
	return outbox.Due{ReadAt: l.ReadAt, Events: local(l.Events), Notifications: local(l.Notifications), Topics: local(l.Topics)}, nil
}

// NextOpenRun looks now. It returns when the first run of the jobs that is requested or under way may begin or be taken over, the zero
// time if there is none, and the database's time. ErrUnavailable.
func (s *Store) NextOpenRun(ctx context.Context, jobs []string) (open, now time.Time, err error) {
	l, err := s.look(ctx, 0, jobs)
	if err != nil {
		return open, now, err
	}
	return l.Run, l.Now, nil
}

// NextExpiry returns when the next offer ends, by the database's clock and as known about a second ago; the zero time if there is no
// offer. ErrUnavailable.
func (s *Store) NextExpiry(ctx context.Context) (time.Time, error) {
	l, err := s.look(ctx, maxLookAge, nil)
	if err != nil {
		return time.Time{}, err
	}
	return l.Expiry, nil
}

// NextWork returns when the next accepted work starts, by the database's clock and as known about a second ago; the zero time if no
// work lies ahead. ErrUnavailable.
func (s *Store) NextWork(ctx context.Context) (time.Time, error) {
	l, err := s.look(ctx, maxLookAge, nil)
	if err != nil {
		return time.Time{}, err
	}
	return l.Work, nil
}
