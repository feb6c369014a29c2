package repository

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/dispatch"
)

// announced adds a dispatch whose creation was told of, so that its end is to be written.
func (db *database) announced(t testing.TB, o *Outbox, edit func(*dispatch.Dispatch)) dispatch.Dispatch {
	t.Helper()
	d := db.add(t, edit)
	o.mustDo(t, db, dispatch.EventCreated, dispatch.TellTask, 0)
	return d
}

// pass lets the dispatch's window pass.
func (db *database) pass(t testing.TB, id dispatch.ID) {
	t.Helper()
	db.exec(t, "UPDATE dispatches SET opens_at = 1, expires_at = 2 WHERE id = ?", id)
}

func TestTheEndOfAnOfferIsDueWhenItsWindowPasses(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		d := db.announced(t, o, nil)
		for round, event := range []dispatch.EventType{dispatch.EventUpdated, dispatch.EventReopened} {
			d = db.happens(t, d.ID, event, func(d *dispatch.Dispatch, _ *dispatch.Event) {
				d.ExpiresAt = d.ExpiresAt.Add(time.Minute)
				d.Round = round + 2
			})
			told := o.mustDo(t, db, event, dispatch.TellTask, 0)
			want := outboxRow{EventID: told.Event.ID, Task: dispatch.ExpiryTask, NextAt: micros(d.ExpiresAt)}
			if got := db.task(t, told.Event.ID, dispatch.ExpiryTask); got != want {
				t.Errorf("%s: %+v, want %+v", event, got, want)
			}
		}
		o.mustDo(t, db, dispatch.EventCreated, dispatch.ExpiryTask, 0) // of a round that is over
		if got := db.mustRead(t, d.ID); got.Version != d.Version {
			t.Errorf("the dispatch is %+v", got)
		}
		db.mustHold(t, 0, dispatch.EventExpired, 0)
		for _, event := range []dispatch.EventType{dispatch.EventOpened, dispatch.EventDeclined, dispatch.EventStarted} {
			db.happens(t, d.ID, event, nil)
			o.mustDo(t, db, event, dispatch.TellTask, 0)
		}
		if n := db.count(t, "outbox WHERE task = 'expiry'"); n != 3 {
			t.Errorf("the end is written %d times", n)
		}
	})
}

func TestAnOfferEndsOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		teller := &database{Store: open(t, db.url), url: db.url, raw: db.raw}
		teller.BornLeased("ins_a", term)
		var h heard
		h.listen(t, teller)
		o := teller.as("ins_a")
		d := db.announced(t, db.as("ins_b"), nil)
		db.pass(t, d.ID)
		told := o.mustDo(t, teller, dispatch.EventCreated, dispatch.ExpiryTask, 10)
		got := db.mustRead(t, d.ID)
		if got.Status != dispatch.Expired || got.Version != d.Version+1 || got.Round != d.Round || told.Dispatch.Version != got.Version {
			t.Errorf("the dispatch is %+v, told %+v", got, told.Dispatch)
		}
		if n := db.count(t, "dispatches WHERE status = 'EXPIRED'"); n != 1 {
			t.Error("that it is over is not written")
		}
		db.mustHold(t, 0, dispatch.EventExpired, 1)
		if len(h.events) != 1 || h.events[0].Type != dispatch.EventExpired || h.events[0].Round != d.Round {
			t.Fatalf("told %+v", h.events)
		}
		if task := db.task(t, h.events[0].ID, dispatch.TellTask); task.Claim != "ins_a" {
			t.Errorf("born as %+v", task)
		}
		if task := db.task(t, told.Event.ID, dispatch.ExpiryTask); task.State != stateDone {
			t.Errorf("the task is %+v", task)
		}
		// Whoever has another task of the same round finds it over.
		db.exec(t, "UPDATE outbox SET state = 0 WHERE task = 'expiry'")
		o.mustDo(t, teller, dispatch.EventCreated, dispatch.ExpiryTask, 10)
		db.mustHold(t, 0, dispatch.EventExpired, 1)
		if len(h.events) != 1 {
			t.Errorf("told %v", h.types())
		}
	})
}

func TestWhatEndsNoOffer(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		v := db.drivers(t, 1)[0]
		withdraw := func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Withdraw(v.ID, "SICK", now)
		}
		tests := []struct {
			name   string
			happen func(dispatch.Dispatch)
			putOff time.Duration // by which the task comes again; 0 if it is done
		}{
			{"accepted", func(d dispatch.Dispatch) { db.mustAccept(t, d.ID, v.ID); db.pass(t, d.ID) }, 0},
			{"canceled", func(d dispatch.Dispatch) { db.mustUpdate(t, d.ID, cancel); db.pass(t, d.ID) }, 0},
			{"in the next round", func(d dispatch.Dispatch) {
				db.mustAccept(t, d.ID, v.ID)
				db.mustUpdate(t, d.ID, withdraw)
				db.pass(t, d.ID)
			}, 0},
			{"extended", func(d dispatch.Dispatch) {
				db.exec(t, "UPDATE dispatches SET expires_at = expires_at + 3600000000 WHERE id = ?", d.ID)
			}, time.Hour},
			{"not open yet", func(d dispatch.Dispatch) {
				db.exec(t, "UPDATE dispatches SET opens_at = expires_at - 1 WHERE id = ?", d.ID)
			}, time.Microsecond},
		}
		for _, tt := range tests {
			d := db.announced(t, o, nil)
			tt.happen(d)
			before, events := db.mustRead(t, d.ID), db.count(t, "events")
			told := o.mustDo(t, db, dispatch.EventCreated, dispatch.ExpiryTask, 10)
			if got := db.mustRead(t, d.ID); got.Version != before.Version || db.count(t, "events") != events {
				t.Errorf("%s: %+v", tt.name, got)
			}
			task := db.task(t, told.Event.ID, dispatch.ExpiryTask)
			switch {
			case tt.putOff == 0 && task.State != stateDone:
				t.Errorf("%s: the task is %+v", tt.name, task)
			case tt.putOff > 0 && task != outboxRow{EventID: told.Event.ID, Task: dispatch.ExpiryTask, NextAt: micros(before.ExpiresAt)}:
				t.Errorf("%s: the task is %+v", tt.name, task)
			}
			db.exec(t, "UPDATE dispatches SET status = 'CANCELED'")
		}
	})
}

// The driver's claim and the end of the offer want the same row at the same time.
func TestTheLastTapAndTheEnd(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for i := range 10 {
			o := db.as("ins_a")
			v := db.drivers(t, 1)[0]
			d := db.announced(t, o, nil)
			task := db.lend(t, "ins_a", dispatch.EventCreated, dispatch.ExpiryTask)
			var ended, claimed error
			if i%2 == 0 {
				db.pass(t, d.ID)
			}
			together(2, func(k int) {
				if k == 0 {
					_, ended = o.Do(t.Context(), task, 0)
				} else {
					_, claimed = db.accept(t.Context(), d.ID, v.ID)
				}
			})
			got := db.mustRead(t, d.ID)
			switch {
			case ended != nil:
				t.Errorf("the end: %v", ended)
			case i%2 == 0 && (got.Status != dispatch.Expired || !errors.Is(claimed, dispatch.ErrExpired)):
				t.Errorf("%s, %v", got.Status, claimed)
			case i%2 == 1 && (got.Status != dispatch.Accepted || claimed != nil):
				t.Errorf("%s, %v", got.Status, claimed)
			}
		}
	})
}

func TestTheReminder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		teller := &database{Store: open(t, db.url), url: db.url, raw: db.raw}
		teller.BornLeased("ins_a", term)
		o := teller.as("ins_a")
		v := db.equipped(t, 1)[0]
		d := db.add(t, nil)
		d = db.mustAccept(t, d.ID, v.Driver)
		accepted := o.mustDo(t, db, dispatch.EventAccepted, dispatch.TellTask, 10).Event
		want := outboxRow{
			EventID: accepted.ID, Task: dispatch.RemindTask, NextAt: micros(d.WorkStartsAt.Add(-30 * time.Minute)),
		}
		if got := db.task(t, accepted.ID, dispatch.RemindTask); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		var h heard
		h.listen(t, teller)
		o.mustDo(t, teller, dispatch.EventAccepted, dispatch.RemindTask, 10)
		db.mustHold(t, 1, dispatch.EventReminder, 1)
		if len(h.events) != 1 || h.events[0].Driver != v.Driver || h.events[0].Round != 1 || h.stored[0] != 1 {
			t.Fatalf("told %+v", h.events)
		}
		if task := db.task(t, h.events[0].ID, dispatch.TellTask); task.Claim != "ins_a" {
			t.Errorf("born as %+v", task)
		}
		if _, err := o.Do(t.Context(), dispatch.Task{Event: accepted.ID, Kind: dispatch.RemindTask}, 10); !errors.Is(err, dispatch.ErrNotLeased) {
			t.Errorf("again: %v", err)
		}
		told := o.mustDo(t, db, dispatch.EventReminder, dispatch.TellTask, 10)
		db.mustTell(t, told.Event.ID, dispatch.EventReminder, false, v)
		if len(told.Pushes) != 1 || !told.Pushes[0].Until.Equal(d.WorkStartsAt) || told.Pushes[0].Driver != v.Driver {
			t.Errorf("%+v", told.Pushes)
		}
		if got := db.mustRead(t, d.ID); got.Version != d.Version {
			t.Errorf("the dispatch is %+v", got)
		}
	})
}

func TestNoReminder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.equipped(t, 1)[0]
		change := func(do func(*dispatch.Dispatch, dispatch.DriverID, time.Time) ([]dispatch.Event, error)) func(dispatch.ID) {
			return func(id dispatch.ID) {
				db.mustUpdate(t, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
					return do(d, v.Driver, now)
				})
			}
		}
		withdraw := change(func(d *dispatch.Dispatch, by dispatch.DriverID, now time.Time) ([]dispatch.Event, error) {
			return d.Withdraw(by, "SICK", now)
		})
		for name, happens := range map[string]func(dispatch.ID){
			"withdrawn": withdraw,
			"started":   change((*dispatch.Dispatch).Start),
			"canceled": change(func(d *dispatch.Dispatch, _ dispatch.DriverID, now time.Time) ([]dispatch.Event, error) {
				return cancel(d, now)
			}),
			"taken in the next round": func(id dispatch.ID) {
				withdraw(id)
				if _, err := db.Claim(t.Context(), id, v.Driver, rule(2)); err != nil {
					t.Fatal(err)
				}
			},
		} {
			d := db.add(t, nil)
			db.mustAccept(t, d.ID, v.Driver)
			o := db.as("ins_a")
			told := o.mustDo(t, db, dispatch.EventAccepted, dispatch.TellTask, 0)
			happens(d.ID)
			task := dispatch.Task{Event: told.Event.ID, Kind: dispatch.RemindTask}
			db.exec(t, "UPDATE outbox SET claim = 'ins_a' WHERE task = 'reminder'")
			if _, err := o.Do(t.Context(), task, 10); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := db.task(t, task.Event, task.Kind); got.State != stateDone {
				t.Errorf("%s: the task is %+v", name, got)
			}
			db.exec(t, "UPDATE dispatches SET status = 'CANCELED'")
		}
		if n := db.count(t, "events WHERE type = ?", dispatch.EventReminder); n != 0 {
			t.Errorf("%d reminders", n)
		}
	})
}

func TestNoTimeForAReminder(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.equipped(t, 1)[0]
		for _, before := range []time.Duration{0, time.Hour, 24 * time.Hour} {
			d := db.add(t, nil) // whose work starts in an hour
			db.mustAccept(t, d.ID, v.Driver)
			o := db.as("ins_a", func(o *OutboxOptions) { o.RemindBefore = before })
			o.mustDo(t, db, dispatch.EventAccepted, dispatch.TellTask, 0)
			if n := db.count(t, "outbox WHERE task = 'reminder'"); n != 0 {
				t.Errorf("%v before the work: %d reminders", before, n)
			}
			db.mustUpdate(t, d.ID, cancel)
		}
	})
}

// What came to be told while the reminder waited for its time: a driver who has started, or no longer has it, hears no more.
func TestAReminderThatIsOvertaken(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.equipped(t, 1)[0]
		d := db.add(t, nil)
		db.mustAccept(t, d.ID, v.Driver)
		o := db.as("ins_a")
		o.mustDo(t, db, dispatch.EventAccepted, dispatch.TellTask, 0)
		o.mustDo(t, db, dispatch.EventAccepted, dispatch.RemindTask, 0)
		db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) { return d.Start(v.Driver, now) })
		told := o.mustDo(t, db, dispatch.EventReminder, dispatch.TellTask, 10)
		if len(told.Pushes)+told.Left != 0 || told.Dropped != 1 {
			t.Errorf("%+v", told)
		}
	})
}

func TestAnOfferEndsNotWithoutItsContext(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		o := db.as("ins_a")
		d := db.announced(t, o, nil)
		db.pass(t, d.ID)
		task := db.lend(t, "ins_a", dispatch.EventCreated, dispatch.ExpiryTask)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := o.Do(ctx, task, 0); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		db.mustHold(t, 0, dispatch.EventExpired, 0)
	})
}
