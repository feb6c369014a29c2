package pushes_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// A relay skips rows that others have locked or are about to write, and goes on with the rest.
func TestOpenTransactionDelaysNoRelay(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "SKIP LOCKED")
		devices := db.Equipped(t, 3)
		d := db.Add(t, nil)
		created := db.Lend(t, "ins_a", dispatch.EventCreated)
		events := db.ManyEvents(t, 3)
		rows := db.WriteNotifications(t, d, 3, ToDevices(devices))
		o := db.As("ins_a")
		sending := RowIDs(db.WriteNotifications(t, d, 2, func(i int, n *pushes.NotificationRow) {
			ToDevices(devices)(i, n)
			n.Claim, n.DueAt = "ins_a", n.DueAt+Term.Microseconds()
		}))
		tx, _ := db.Hold(t, d.ID) // a change of the dispatch that is not committed, with its event
		for _, s := range []struct {
			query string
			args  []any
		}{
			{"UPDATE notifications SET reason = 'x' WHERE id = ?", []any{rows[0].ID}},
			{"UPDATE notifications SET reason = 'x' WHERE id = ?", []any{sending[0]}},
			{"UPDATE events SET claim = 'x' WHERE id = ?", []any{events[0]}},
			{"UPDATE drivers SET on_duty = FALSE WHERE id = ?", []any{devices[2].Driver}},
			{"UPDATE devices SET locale = 'x' WHERE id = ?", []any{devices[2].ID}},
			{"INSERT INTO events VALUES ('evt_x', ?, 'dispatch.opened', 1, NULL, 'system', '', 1, '', 1, '')", []any{d.ID}},
			{`INSERT INTO notifications SELECT 'ntf_x', 'evt_x', device_id, topic, driver_id, dispatch_id, round, type, silent, state,
				priority, 1, claim, attempts, result, reason, at, expires_at, created_at, sent_at FROM notifications WHERE id = ?`, []any{rows[0].ID}},
		} {
			if _, err := tx.Exec(s.query, s.args...); err != nil {
				t.Fatalf("%s: %v", s.query, err)
			}
		}
		o.MustLeaseEvents(t, 10, 2)
		o.MustLease(t, 10, 2)
		o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, sending[1])
		if told, err := o.ExpandFully(t.Context(), created, 10); err != nil || len(told.Pushes) != 3 {
			t.Errorf("%d pushes, %v", len(told.Pushes), err)
		}
		_, _, err := db.Backlog(t.Context())
		Must(t, err)
	})
}

// instance is one process: it changes dispatches, announces its commits, expands due events and sends due pushes.
type instance struct {
	*Bench
	o     *Outbox
	fresh chan dispatch.EventID
	sent  *sentOnce
}

type sentOnce struct {
	mu    sync.Mutex
	times map[dispatch.NotificationID]int
}

func instanceOf(db *Bench, t *testing.T, i int, sent *sentOnce) *instance {
	in := &instance{fresh: make(chan dispatch.EventID, 10_000), sent: sent}
	owner := fmt.Sprintf("ins_%d", i)
	in.Bench = db.With(t, func(o *repository.Options) {
		o.OutboxOwner, o.OutboxLease = owner, Term
		o.OnCommit = func(_ dispatch.Dispatch, events []dispatch.Event) {
			for _, e := range events {
				if !e.PushAt.After(e.At) {
					in.fresh <- e.ID
				}
			}
		}
	})
	in.o = in.As(owner)
	return in
}

// change has drivers take dispatches and give them back.
func (in *instance) change(t *testing.T, drivers []dispatch.Device, shared []dispatch.ID, i int) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for n := i; n < i+testkit.Scale(30, 100); n++ {
		<-pace.C
		id, driver := shared[n%len(shared)], drivers[(n*7+i)%len(drivers)].Driver
		var err error
		switch n % 5 {
		case 0, 1, 2:
			_, err = in.Claim(t.Context(), id, driver, WhateverElse)
		case 3:
			_, err = in.Update(t.Context(), id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				if d.Claim == nil {
					return d.Reannounce(0, now)
				}
				return Withdraw(d, now)
			})
			// The rounds follow one another too fast to be pushed at once.
			testkit.Retry(t, func() error { // a deadlock with a relay ends it
				return ErrorOf(in.Raw.Exec("UPDATE events SET next_at = at WHERE dispatch_id = ? AND next_at > at AND claim = ''", id))
			})
		case 4:
			_, err = in.Dispatch(t.Context(), id)
		}
		if err != nil && !errors.Is(err, dispatch.ErrAlreadyTaken) && !errors.Is(err, dispatch.ErrNotOpenYet) {
			t.Errorf("%d: %v", n%5, err)
		}
	}
}

// relay expands and sends until stopped; every fifth attempt fails.
func (in *instance) relay(t *testing.T, stop <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case event := <-in.fresh:
			in.expand(t, event)
		case <-tick.C:
			events, err := in.o.LeaseEvents(t.Context(), 8)
			if err != nil {
				t.Errorf("LeaseEvents: %v", err)
			}
			for _, event := range events {
				in.expand(t, event)
			}
			pushes, _, err := in.o.LeaseNotifications(t.Context(), 16)
			if err != nil {
				t.Errorf("LeaseNotifications: %v", err)
			}
			in.send(t, pushes)
		case <-stop:
			return
		}
	}
}

func (in *instance) expand(t *testing.T, event dispatch.EventID) {
	told, err := in.o.ExpandFully(t.Context(), event, 5)
	if err != nil {
		t.Errorf("Expand %s: %v", event, err)
	}
	in.send(t, told.Pushes)
}

func (in *instance) send(t *testing.T, pushes []outbox.Push) {
	var settled []outbox.SendResult
	for i, p := range pushes {
		s := outbox.SendResult{ID: p.ID, Status: outbox.Pending, Attempts: p.Attempts + 1}
		if i%5 != 4 {
			s.Status = outbox.Sent
			in.sent.mu.Lock()
			in.sent.times[p.ID]++
			in.sent.mu.Unlock()
		}
		settled = append(settled, s)
	}
	if err := in.o.RecordResults(t.Context(), settled, nil); err != nil {
		t.Errorf("RecordResults: %v", err)
	}
}

// TestEachPushIsSentOnce: each push is sent once by several instances.
func TestEachPushIsSentOnce(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		devices := db.Equipped(t, 12)
		sent := &sentOnce{times: map[dispatch.NotificationID]int{}}
		instances := []*instance{instanceOf(db, t, 0, sent)}
		for len(instances) < 3 && !db.SQLite() { // SQLite has one process
			instances = append(instances, instanceOf(db, t, len(instances), sent))
		}
		var ids []dispatch.ID
		for i := range 6 {
			ids = append(ids, instances[i%len(instances)].Add(t, nil).ID)
		}
		var changing, relaying sync.WaitGroup
		stopped := make(chan struct{})
		stop := sync.OnceFunc(func() {
			close(stopped)
			relaying.Wait()
		})
		defer stop()
		for i, in := range instances {
			for j := range 2 {
				changing.Go(func() { in.change(t, devices, ids, 10*i+j) })
				relaying.Go(func() { in.relay(t, stopped) })
			}
		}
		changing.Wait()
		testkit.Retry(t, func() error {
			if n := db.Count(t, "events WHERE next_at IS NOT NULL") + db.Count(t, "notifications WHERE state = 0"); n > 0 {
				return fmt.Errorf("%d rows are never done", n)
			}
			return nil
		})
		stop()
		sent.check(t, db)
		checkNoStaleOffers(db, t)
	})
}

func (s *sentOnce) check(t *testing.T, db *Bench) {
	t.Helper()
	mustBeOnce(t, "was sent", s.times)
	if n := db.Count(t, "notifications WHERE state = 1"); n != len(s.times) {
		t.Errorf("%d were sent, %d are stored as sent", len(s.times), n)
	}
	accepted := db.Count(t, "events WHERE type = 'dispatch.accepted'")
	t.Logf("%d events, %d claims, %d sent, %d dropped", db.Count(t, "events"), accepted, len(s.times), db.Count(t, "notifications WHERE state = 3"))
	if accepted == 0 || len(s.times) == 0 {
		t.Error("no driver claimed, or no push was sent")
	}
}

// checkNoStaleOffers fails the test if a driver was sent an offer that is over and no push that ends it.
func checkNoStaleOffers(db *Bench, t *testing.T) {
	t.Helper()
	if n := db.Count(t, `notifications n JOIN dispatches d ON d.id = n.dispatch_id AND d.round = n.round
		WHERE d.status = 'ACCEPTED' AND n.state = 1 AND n.type IN `+pushes.OfferTypes+` AND n.driver_id <> d.accepted_by
		AND NOT EXISTS (SELECT 1 FROM notifications o WHERE o.dispatch_id = n.dispatch_id AND o.round = n.round
		AND o.device_id = n.device_id AND o.type = 'dispatch.taken' AND o.state = 1)`); n > 0 {
		t.Errorf("%d devices still show the offer of a taken dispatch", n)
	}
	if n := db.Count(t, `dispatches d WHERE d.status = 'ACCEPTED' AND NOT EXISTS (SELECT 1 FROM notifications n
		WHERE n.dispatch_id = d.id AND n.round = d.round AND n.driver_id = d.accepted_by AND n.type = 'dispatch.accepted' AND n.state = 1)`); n > 0 {
		t.Errorf("%d winners got no push of their claim", n)
	}
}
