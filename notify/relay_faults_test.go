package notify_test

import (
	"net/url"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
	"firsttap/outbox"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
)

// attempts returns the sum of the rows' failed attempts.
func (o *office) attempts() (n int) {
	o.t.Helper()
	for _, s := range []outbox.Status{outbox.Pending, outbox.Sent} {
		items, _, err := o.store.NotificationsBy(o.t.Context(), s, dispatch.Page{Limit: 200})
		if err != nil {
			o.t.Fatal(err)
		}
		for _, i := range items {
			n += i.Attempts
		}
	}
	return n
}

// While the push service answers 503, an attempt is one request and the throttle pauses. In the end all phones get the push.
func TestPushServiceIsUnavailable(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 503 })
		o.relay(func(n *notify.RelayOptions, _ *repository.OutboxOptions) {
			n.MaxInFlight, n.FailurePause = 8, 100*time.Millisecond
		})
		o.offer()
		o.eventually("the push service is asked again after a pause", func() bool { return o.fcm.Requests() > 10 })
		// Eight requests are in flight; after five failures in a row the throttle pauses, and then sends one at a time.
		if n := o.fcm.Requests(); n > 30 {
			t.Errorf("%d requests into a storm", n)
		}
		asked := o.fcm.Requests()
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 0 })
		o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
		o.eventually("all are marked as sent", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
		refused := o.fcm.Stats().Statuses[503]
		if int64(o.attempts()) != refused || refused < asked {
			t.Errorf("%d attempts in the books, %d requests were refused", o.attempts(), refused)
		}
		if _, again, _, _ := o.fcm.Totals(); again != 0 {
			t.Errorf("%d messages came twice", again)
		}
	}, 60)
}

// When the quota is full, the throttle pauses as long as the push service asks, and no attempt is counted.
func TestQuota(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.QuotaPerSecond = 20 })
		o.relay(func(n *notify.RelayOptions, _ *repository.OutboxOptions) { n.MaxInFlight = 8 })
		o.offer()
		o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
		o.eventually("all are marked as sent", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
		if o.fcm.Stats().Statuses[429] == 0 {
			t.Fatal("the quota was never reached")
		}
		if n := o.attempts(); n != 0 {
			t.Errorf("%d attempts were used up", n)
		}
		// In each window, only the requests in flight can exceed the quota.
		if n := o.fcm.Stats().Statuses[429]; n > 8*5 {
			t.Errorf("%d requests after the quota was reached", n)
		}
	}, 60)
}

// When the push service accepts a message and cuts the connection, it is sent again, and the phone shows it once.
func TestReplyIsLost(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.DropAfterAccept = 0.5 })
		o.relay(nil)
		o.offer()
		o.eventually("all are marked as sent", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
		_, again, visible, told := o.fcm.Totals()
		if again == 0 {
			t.Fatal("nothing was sent twice: the test shows nothing")
		}
		if visible != len(o.cars) || told != len(o.cars) {
			t.Errorf("%d phones show %d notifications, want one each on %d", told, visible, len(o.cars))
		}
	}, 20)
}

// A push whose payload is refused is DEAD, with the reason, and is sent after a redrive.
func TestPoison(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Poison(phone(o.cars[1]))
		r := o.relay(nil)
		o.offer()
		o.eventually("one is dead", func() bool { return o.rows()["DEAD poison"] == 1 })
		o.eventually("the others are sent", func() bool { return o.rows()["SENT sent"] == len(o.cars)-1 })
		dead, _, err := o.store.NotificationsBy(t.Context(), outbox.Dead, dispatch.Page{Limit: 2})
		if err != nil || len(dead) != 1 || dead[0].Reason == "" || dead[0].Driver != o.cars[1].ID {
			t.Fatalf("%v %v", dead, err)
		}
		o.fcm.Cure()
		if _, err := o.store.Redrive(t.Context(), dead[0].ID); err != nil {
			t.Fatal(err)
		}
		r.Wake()
		o.eventually("it is sent", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
	}, 5)
}

// An offer that was accepted while the push service hung is not sent any more.
func TestSuperseded(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = true })
		o.relay(func(n *notify.RelayOptions, _ *repository.OutboxOptions) { n.MaxInFlight = 4 })
		d := o.offer()
		o.eventually("the push service hangs", func() bool { return o.fcm.Requests() >= 4 })
		o.accept(d, o.cars[0])
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = false })
		o.eventually("the winner is told", func() bool { return o.shows(dispatch.EventAccepted) == 1 })
		o.eventually("nothing is pending", func() bool {
			for what := range o.rows() {
				if what[:7] == "PENDING" {
					return false
				}
			}
			return true
		})
		if n := o.shows(dispatch.EventOpened); n != 0 {
			t.Errorf("%d phones show an offer that is over", n)
		}
		if n := o.rows()["DROPPED superseded"]; n < len(o.cars)-8 {
			t.Errorf("%d of %d offers were dropped", n, len(o.cars))
		}
	}, 40)
}

// A relay that stops releases the pushes that it did not send: another sends them before the lease would have ended.
func TestRelayEnds(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = true })
		long := func(n *notify.RelayOptions, b *repository.OutboxOptions) {
			n.MaxInFlight, b.LeaseTerm, n.DrainTimeout = 4, time.Hour, 50*time.Millisecond
		}
		r := o.relay(long)
		o.offer()
		o.eventually("the push service hangs", func() bool { return o.fcm.Requests() >= 4 })
		r.stop()
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = false })
		o.relayBeside(long)
		o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
	}, 40)
}

// One push to a topic tells a large audience that the offer is over. The audience is unsubscribed after the topic's release.
func TestTopic(t *testing.T) {
	onDatabases(t, func(t *testing.T, o *office) {
		o.relay(func(_ *notify.RelayOptions, b *repository.OutboxOptions) { b.TopicThreshold = 20 })
		d := o.offer()
		topic := outbox.TopicOf(d.ID)
		o.eventually("the audience is subscribed", func() bool { return len(o.fcm.Subscribers(topic)) == len(o.cars) })
		o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
		o.eventually("all is settled", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
		before := o.fcm.Requests()
		o.accept(d, o.cars[0])
		o.eventually("no phone shows the offer", func() bool { return o.shows(dispatch.EventOpened) == 0 })
		o.eventually("the winner is told", func() bool { return o.shows(dispatch.EventAccepted) == 1 })
		if n := len(o.fcm.Subscribers(topic)); n != len(o.cars) {
			t.Errorf("%d are subscribed still, want all %d", n, len(o.cars))
		}
		if n, err := o.store.ScheduleTopicCleanup(t.Context()); n != 1 || err != nil {
			t.Errorf("released %d topics, %v", n, err)
		}
		o.eventually("nobody is subscribed", func() bool { return len(o.fcm.Subscribers(topic)) == 0 })
		if n := o.fcm.Requests() - before; n > 3 { // the winner, the topic, and an offer whose arrival was not known
			t.Errorf("%d requests to tell %d phones", n, len(o.cars))
		}
	}, 30)
}

// The database becomes unreachable between the COMMIT of an event and its expansion: when it is back, the event is expanded
// at once, not when its lease ends.
func TestDatabaseIsAwayForAMoment(t *testing.T) {
	o := newOffice(t, repositorytest.URL(t, "mariadb"), 3)
	u, err := url.Parse(o.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := servertest.StartProxy(t, u.Host)
	o.url = proxy.URL(o.url)
	o.store = o.open(repository.Options{})
	o.relay(func(_ *notify.RelayOptions, b *repository.OutboxOptions) { b.LeaseTerm = time.Hour })
	hold := proxy.Hold("UPDATE outbox SET state = 1")
	o.offer()
	<-hold.Reached()
	proxy.Refuse(true)
	hold.Release()
	proxy.Refuse(false)
	o.eventually("all phones show the offer", func() bool { return o.shows(dispatch.EventOpened) == len(o.cars) })
}
