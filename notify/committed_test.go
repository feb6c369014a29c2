package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
	"firsttap/repository"
	"firsttap/testkit"
)

// due returns how many events wait for a relay, or were left by one. It does not count events that a relay leases.
func (o *office) due() int {
	o.t.Helper()
	owner := dispatch.NewUniqueID("ins_", time.Now())
	leased, err := o.store.Outbox(repository.OutboxOptions{Owner: owner, LeaseTerm: time.Microsecond}).LeaseEvents(o.t.Context(), 1000)
	if err != nil {
		o.t.Fatal(err)
	}
	return len(leased)
}

// untilFinished waits until the relay has expanded or completed so many events.
func (o *office) untilFinished(r *relaying, events int) {
	o.t.Helper()
	o.eventually("every event is expanded or completed", func() bool { return r.wire.finished() == events })
}

// longLeases makes leases outlast the test where time is real: what a relay has forgotten then stays so.
func (o *office) longLeases(_ *notify.RelayOptions, b *repository.OutboxOptions) {
	if !o.bubble {
		b.LeaseTerm = time.Hour
	}
}

// assignUnseen has a driver win a dispatch that nobody was told about.
func (o *office) assignUnseen(v dispatch.Driver) dispatch.Dispatch {
	o.t.Helper()
	d := o.offerIn(v.Regions[0])
	o.accept(d, v)
	return d
}

// Events of drivers without a device are completed together. Only each driver's first is expanded, and no relay finds one later.
func TestEventsWithoutRecipients(t *testing.T) {
	t.Parallel()
	onDatabasesInAll(t, 1, func(t *testing.T, o *office) {
		const rounds = 10
		drivers := o.accounts(5, "jeju")
		jobs := rounds * len(drivers)
		r := o.relay(o.longLeases)
		r.wire.set(noFault, 0)
		for round := range rounds {
			for _, v := range drivers {
				d := o.assignUnseen(v)
				_, err := o.store.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
					return d.Start(v, now)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			o.untilFinished(r, 3*len(drivers)*(round+1))
		}
		if o.bubble {
			time.Sleep(time.Minute) // until every lease has ended
		}
		r.stop()
		calls := map[string]int{}
		for _, c := range r.wire.made() {
			calls[c.name]++
		}
		testkit.Equal(t, "events that are due", 0, o.due())
		// Each offer is expanded. The other events that may have recipients are the claims, one of each job.
		if n := calls["Expand"] - jobs; n >= jobs || o.bubble && n > len(drivers) {
			t.Errorf("%d of %d claims without recipients were expanded", n, jobs)
		}
		if n := calls["CompleteEvents"]; n == 0 || o.bubble && n > 3*rounds {
			t.Errorf("%d statements completed them", n)
		}
	})
}

// A driver who has registered a device after the relay's last look is told. The events of drivers without a device are completed.
func TestDriverGetsADevice(t *testing.T) {
	t.Parallel()
	onDatabasesInAll(t, 0, func(t *testing.T, o *office) {
		var drivers []dispatch.Driver
		for range 10 {
			drivers = append(append(drivers, o.accounts(1, "jeju")...), o.accounts(1, "busan")...)
		}
		r := o.relay(o.longLeases)
		for _, v := range drivers {
			o.assignUnseen(v)
		}
		o.untilFinished(r, 2*len(drivers)) // and the relay has learned that they have no device
		for _, v := range drivers {
			if v.Regions[0] == "jeju" {
				o.put(v, "app", phone(v))
				o.cars = append(o.cars, v)
			}
		}
		began := time.Now()
		for _, v := range drivers {
			o.assignUnseen(v)
		}
		o.eventually("all who can be told are told", func() bool { return o.shows(dispatch.EventAccepted) == len(o.cars) })
		if took := time.Since(began); o.bubble && took > 2*time.Second {
			t.Errorf("a winner was told after %s", took)
		}
		testkit.Equal(t, "messages that came twice", 0, o.twice())
		o.untilFinished(r, 4*len(drivers))
		r.stop()
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// Events that have to wait for another's expansion are looked at together: those without recipients are completed, and the drivers of the
// others are told.
func TestWaitingEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, 20, func(t *testing.T, o *office) {
		r := o.relay(nil)
		without := o.accounts(len(o.cars), "jeju")
		var seen, unseen []dispatch.Dispatch
		for range o.cars {
			seen, unseen = append(seen, o.offer()), append(unseen, o.offerIn("jeju"))
		}
		o.eventually("all are told of all", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars)*len(seen) })
		synctest.Wait() // until the other offers are expanded, too
		r.wire.set(noFault, 0)
		r.wire.setNext(replyIsLate, "Expand")
		began := time.Now()
		for i := range seen {
			o.accept(seen[i], o.cars[i])
			o.accept(unseen[i], without[i])
		}
		o.eventually("the winners alone are told that they won", func() bool {
			return o.shows(dispatch.EventOpened) == 0 && o.shows(dispatch.EventAccepted) == len(o.cars)
		})
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a winner was told after %s, when the lease had ended", took)
		}
		expanded := 0
		for _, c := range r.wire.made() {
			if c.name == "Expand" {
				expanded++
			}
		}
		// One that waits alone, as the last of them may, is expanded without a look.
		if expanded < len(seen) || expanded > len(seen)+len(unseen)/4 {
			t.Errorf("%d events are expanded, want those of %d dispatches and few others", expanded, len(seen))
		}
		testkit.Equal(t, "messages that came twice", 0, o.twice())
		r.stop()
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// Cancelations of dispatches that nobody was offered, which have no driver either, hide no later cancelation.
func TestCancelationsWithoutRecipients(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, o *office) {
		r := o.relay(nil)
		cancel := func(d dispatch.Dispatch) {
			t.Helper()
			_, err := o.store.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
				return d.Cancel(d.Version, "key_1", "RAIN", now)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		first, last := o.offer(), o.offer()
		unseen := []dispatch.Dispatch{o.offerIn("jeju"), o.offerIn("jeju")}
		o.eventually("all are told of both", func() bool { return o.shows(dispatch.EventOpened) == 2*len(o.cars) })
		synctest.Wait() // until the other offers are expanded, too
		r.wire.setNext(replyIsLate, "Expand")
		cancel(first)
		for _, d := range unseen {
			cancel(d) // and waits for the first
		}
		o.eventually("the first offer is gone from all phones", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
		cancel(last)
		o.eventually("no phone shows a canceled offer", func() bool { return o.shows(dispatch.EventOpened) == 0 })
		r.stop()
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// A relay that stops completes first what waits for its completion.
func TestRelayEndsWithCompletions(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r := o.relay(nil)
		v := o.accounts(1, "jeju")[0]
		o.assignUnseen(v)
		synctest.Wait() // until the relay has learned that the driver has no device
		o.assignUnseen(v)
		synctest.Wait()
		before := time.Now()
		r.stop()
		testkit.Equal(t, "time to stop", 0, time.Since(before))
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// If the completion of events fails, the relay completes them within seconds. It does not wait until their leases end.
func TestCompletionFails(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r := o.relay(o.longLeases)
		v := o.accounts(1, "jeju")[0]
		o.assignUnseen(v)
		synctest.Wait() // until the relay has learned that the driver has no device
		r.wire.setNext(requestIsLost, "CompleteEvents")
		o.assignUnseen(v)
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "faults that have not struck", 0, r.wire.ahead())
		r.stop() // which releases what the relay has leased and not completed
		testkit.Equal(t, "events that are not completed", 0, o.due())
	})
}

// Other events are expanded while the expansion of one event is slow.
func TestSlowExpansionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, o *office) {
		r, _ := o.relayBeside(nil)
		r.wire.setNext(replyIsLate, "Expand")
		o.offer()
		o.offer()
		r.Wake()
		began := time.Now()
		o.eventually("an offer arrives", func() bool { return o.shows(dispatch.EventOpened) == 1 })
		if took := time.Since(began); took >= lateReplyDelay {
			t.Errorf("the first offer arrived after %s, when the slow expansion had ended", took)
		}
		o.eventually("both arrive", func() bool { return o.shows(dispatch.EventOpened) == 2 })
	})
}

// The offer of a small audience needs no expansion, as its pushes are committed with the dispatch. If the look whether they are all fails,
// the event is expanded, and nobody is told twice.
func TestFirstPushesNeedNoExpansion(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, o *office) {
		r := o.relay(nil)
		synctest.Wait() // until it runs
		for events, f := range []fault{noFault, requestIsLost, replyIsLost} {
			r.wire.set(noFault, 0)
			r.wire.setNext(f, "Notified")
			began := time.Now()
			o.offer()
			o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars)*(events+1) })
			testkit.Equal(t, "time to the offer", 0, time.Since(began))
			o.untilFinished(r, events+1)
			for _, c := range r.wire.made() {
				if c.name == "LeaseNotifications" || c.name == "Expand" && f == noFault {
					t.Errorf("%q: a call of %s", f, c.name)
				}
			}
		}
		testkit.Equal(t, "messages that came twice", 0, o.twice())
		time.Sleep(time.Minute) // until every lease has ended
		testkit.Equal(t, "events that are due", 0, o.due())
	})
}

// A relay that is stopped, or that the push service does not let send, takes no pushes.
func TestRelayWithoutRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, o *office) {
		r := o.relay(nil)
		r.stop()
		testkit.Equal(t, "room of a stopped relay", 0, r.Room())
		r = o.relay(nil)
		synctest.Wait()
		testkit.Equal(t, "room", 64, r.Room())
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 503 })
		o.offer()
		o.eventually("sending is paused", func() bool { return r.Room() == 0 })
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 0 })
		o.untilAllShow()
		o.eventually("there is room again", func() bool { return r.Room() > 0 })
	})
}
