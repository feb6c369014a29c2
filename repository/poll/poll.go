// Package poll tells when something is due, anywhere in the database. It owns no table: it reads the first row of each index that is sorted
// by the time at which rows become due, all in one statement a second.
package poll

import (
	"context"
	"sync/atomic"
	"time"

	"firsttap/repository/database"
	"firsttap/repository/primary"
)

// Waiting is what waits in the database. Its times are by the database's clock; a zero time says that nothing waits.
type Waiting struct {
	// ReadAt is when the answer had arrived, by this process's clock; Now is the database's time in it.
	ReadAt, Now time.Time
	// Events, Notifications and Topics are when the next one is due for a relay.
	Events, Notifications, Topics time.Time
	// Run is when the first run that is requested or under way may begin or be taken over.
	Run time.Time
	// Expiry is when the next offer ends, Work when the next accepted work starts.
	Expiry, Work time.Time
	// Webhooks is when the first delivery to an active endpoint is due, Unwritten that deliveries of events or of a replay are to be
	// written.
	Webhooks  time.Time
	Unwritten bool
}

// Poll reads what waits, with one statement for all of it. All parts of the process share the answers, so that an idle process sends one
// statement a second. It is safe for concurrent use.
type Poll struct {
	db     *database.DB
	latest atomic.Pointer[Waiting] // nil after a statement that failed
	asking chan struct{}           // holds one element while a statement is under way
}

// New returns the poll of a database.
func New(db *database.DB) *Poll { return &Poll{db: db, asking: make(chan struct{}, 1)} }

// MaxAge is how old a shared answer may be: a little more than the time between two polls of the scheduler.
const MaxAge = 1200 * time.Millisecond

// fresh returns the latest answer if it is younger than maxAge, and nil otherwise.
func (p *Poll) fresh(maxAge time.Duration) *Waiting {
	if w := p.latest.Load(); w != nil && time.Since(w.ReadAt) < maxAge {
		return w
	}
	return nil
}

// Waiting returns an answer that is younger than maxAge. If it has to ask, the answer tells of the runs of jobs. ErrUnavailable.
func (p *Poll) Waiting(ctx context.Context, maxAge time.Duration, jobs []string) (*Waiting, error) {
	if w := p.fresh(maxAge); w != nil {
		return w, nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return nil, database.Unavailable(ctx.Err())
	}
	if w := p.fresh(maxAge); w != nil {
		return w, nil
	}
	w, err := p.read(ctx, jobs)
	p.latest.Store(w)
	return w, err
}

// FirstDelivery is the SQL for when the first pending delivery to the endpoint w is due. With the time inside, or
// without the whole order of the index, a server may read all pending deliveries.
const FirstDelivery = `(SELECT d.next_at FROM webhook_deliveries d {force ix_webhook_deliveries_due}
	WHERE d.webhook_id = w.id AND d.status = 'PENDING' ORDER BY d.webhook_id, d.status, d.next_at LIMIT 1)`

const waitingSQL = `SELECT {now}, {read_only},
	(SELECT next_at FROM events {force ix_events_due} WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1),
	(SELECT due_at FROM notifications {force ix_notifications_due} WHERE state = 0 AND priority = 1 ORDER BY due_at LIMIT 1),
	(SELECT due_at FROM notifications {force ix_notifications_due} WHERE state = 0 AND priority = 2 ORDER BY due_at LIMIT 1),
	(SELECT due_at FROM notifications {force ix_notifications_due} WHERE state = 0 AND priority = 3 ORDER BY due_at LIMIT 1),
	(SELECT next_at FROM topics {force ix_topics_due} WHERE state = 0 ORDER BY next_at LIMIT 1),
	(SELECT expires_at FROM dispatches {force ix_dispatches_expiry} WHERE status = 'PENDING' ORDER BY expires_at LIMIT 1),
	(SELECT work_starts_at FROM dispatches {force ix_dispatches_work}
		WHERE status = 'ACCEPTED' AND work_starts_at > {now} ORDER BY work_starts_at LIMIT 1),
	(SELECT MIN(CASE r.status WHEN 'QUEUED' THEN 0 ELSE r.alive_until END) FROM jobs j CROSS JOIN job_runs r {force ix_job_runs_open}
		WHERE j.name IN ? AND r.job = j.name AND r.status IN ('RUNNING', 'QUEUED')),
	(SELECT MIN(` + FirstDelivery + `) FROM webhooks w WHERE w.status = 'ACTIVE'),
	EXISTS (SELECT 1 FROM webhook_events) OR EXISTS (SELECT 1 FROM webhooks WHERE status = 'ACTIVE' AND replay_until IS NOT NULL)`

// read asks the database. ErrUnavailable.
func (p *Poll) read(ctx context.Context, jobs []string) (*Waiting, error) {
	var now int64
	var readOnly, unwritten bool
	var events, offers, own, ends, topics, expiry, work, run, delivery *int64
	err := p.db.Watch.With(primary.Unchecked(ctx)).Raw(waitingSQL, jobs).Row().
		Scan(&now, &readOnly, &events, &offers, &own, &ends, &topics, &expiry, &work, &run, &delivery, &unwritten)
	switch {
	case err != nil:
		return nil, database.Unavailable(err)
	case readOnly:
		return nil, p.db.Stale()
	}
	// at returns the first of the times that are not nil.
	at := func(times ...*int64) (first time.Time) {
		for _, us := range times {
			if us != nil && (first.IsZero() || database.Time(*us).Before(first)) {
				first = database.Time(*us)
			}
		}
		return first
	}
	return &Waiting{
		ReadAt: time.Now(), Now: database.Time(now), Events: at(events), Notifications: at(offers, own, ends), Topics: at(topics),
		Run: at(run), Expiry: at(expiry), Work: at(work), Webhooks: at(delivery), Unwritten: unwritten,
	}, nil
}

// Local converts a time by the database's clock into one by this process's clock; a zero time stays one.
func (w *Waiting) Local(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return w.ReadAt.Add(at.Sub(w.Now))
}
