//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package notify_test

import (
	"context"
	"log/slog"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/repository/pushes"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
)

// attempts returns the sum of the sent rows' failed attempts.
func (o *office) attempts() (n int) {
	o.t.Helper()
	for _, row := range o.notifications(outbox.Sent) {
		n += row.Attempts
	}
	return n
}

// While the push service answers 503, an attempt is one request and the throttle pauses. In the end all phones get the push.
func TestPushServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	inBubble(t, 60, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status, k.Latency = 503, 50*time.Millisecond })
		o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.MaxInFlight = 8 })
		o.offer()
		time.Sleep(3 * time.Minute)
		// Eight requests in flight fail. Then single requests ask: after 1 s, 2 s, 4 s, up to 30 s, up to half of each less.
		asked := o.fcm.Requests()
		if asked < 8+6 || asked > 8+16 {
			t.Errorf("%d requests in three minutes of a storm", asked)
		}
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 0 })
		time.Sleep(time.Minute)
		o.mustHaveSentAll()
		testkit.Equal(t, "recorded attempts", asked, int64(o.attempts()))
		testkit.Equal(t, "messages that came twice", 0, o.twice())
	})
}

// A relay stops, for example because its instance has lost the lead. Its metrics show no backlog after half a minute: the relay that works
// now shows it.
func TestBacklogOfARelayThatEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, 60, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 503 })
		metrics := prometheus.NewRegistry()
		r := o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.MaxInFlight, n.Metrics = 8, metrics })
		o.offer()
		time.Sleep(time.Minute)
		if due, age := gauge(t, metrics, "firsttap_push_backlog"), gauge(t, metrics, "firsttap_push_backlog_age_seconds"); due == 0 || age == 0 {
			t.Errorf("a minute without a push service shows %v notifications that are due for %v s", due, age)
		}
		r.stop()
		for _, name := range []string{"firsttap_push_backlog", "firsttap_push_backlog_age_seconds"} {
			if gauge(t, metrics, name) == 0 {
				t.Errorf("%s is 0 at once: a relay that begins again every 10 s would show nothing", name)
			}
		}
		time.Sleep(31 * time.Second)
		for _, name := range []string{"firsttap_push_backlog", "firsttap_push_backlog_age_seconds"} {
			testkit.Equal(t, name, 0.0, gauge(t, metrics, name))
		}
		stop := testkit.Run(t, r.Run)
		time.Sleep(5 * time.Second)
		stop()
		if gauge(t, metrics, "firsttap_push_backlog") == 0 {
			t.Error("a relay that ran for 5 s shows nothing")
		}
	})
}

// When the quota is full, the throttle pauses, and no attempt is counted.
func TestQuota(t *testing.T) {
	t.Parallel()
	inBubble(t, 60, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.QuotaPerSecond, k.Latency, k.RetryAfter = 20, 50*time.Millisecond, "7" })
		o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.MaxInFlight = 8 })
		o.offer()
		time.Sleep(2 * time.Minute)
		o.mustHaveSentAll()
		// Beyond the quota go the requests in flight, in each of the windows.
		if n := o.fcm.Stats().Statuses[429]; n == 0 || n > 8*5 {
			t.Errorf("%d requests after the quota was reached", n)
		}
		testkit.Equal(t, "attempts that were used up", 0, o.attempts())
	})
}

// A push that may have three requests is dead after three, whatever the push service answers. What does not reach it is no request.
func TestMostAttempts(t *testing.T) {
	t.Parallel()
	for status, class := range map[int]string{503: "unavailable", 429: "quota", 401: "auth", 404: "dead_token"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, func(t *testing.T, o *office) {
				o.fcm.Set(func(k *fcmtest.Knobs) {
					k.Status, k.ErrorCode = status, map[int]string{401: "-", 404: "UNREGISTERED"}[status]
				})
				o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.MaxAttempts, n.MaxInFlight = 3, 1 })
				o.offer()
				time.Sleep(20 * time.Minute)
				testkit.Equal(t, "requests", 3*len(o.cars), int(o.fcm.Requests()))
				testkit.Equal(t, "dead pushes", len(o.cars), o.rows()["DEAD "+class])
			})
		})
	}
	inBubble(t, 3, func(t *testing.T, o *office) {
		o.relay(func(n *notify.RelayOptions, _ *pushes.Options) {
			away := &awaySender{Sender: n.Sender}
			away.times.Store(10)
			n.MaxAttempts, n.Sender = 1, away
		})
		o.offer()
		time.Sleep(time.Minute)
		o.mustHaveSentAll()
	})
}

// awaySender does not reach the push service some times.
type awaySender struct {
	notify.Sender
	times atomic.Int32
}

func (s *awaySender) Send(ctx context.Context, p outbox.Push) notify.Outcome {
	if s.times.Add(-1) >= 0 {
		return notify.Outcome{Class: notify.Unreached}
	}
	return s.Sender.Send(ctx, p)
}

// While the push service refuses the credentials, all pushes or those to one platform get a request a minute. No attempt is
// counted, and all are sent when the credentials are right.
func TestCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ code, alert string }{
		"ours":         {"-", "push service refuses our credentials"},
		"a platform's": {"", "push service lacks valid credentials for a platform"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 5, func(t *testing.T, o *office) {
				log := &testkit.LogBuffer{}
				o.fcm.Set(func(k *fcmtest.Knobs) { k.Status, k.ErrorCode = 401, c.code })
				o.relay(func(n *notify.RelayOptions, _ *pushes.Options) {
					n.MaxInFlight, n.Log = 1, slog.New(slog.NewTextHandler(log, nil))
				})
				o.offer()
				time.Sleep(5 * time.Minute)
				asked := int(o.fcm.Requests())
				if asked < 3 || asked > 6 || log.Count(c.alert) != asked {
					t.Errorf("%d requests in five minutes, %d alerts", asked, log.Count(c.alert))
				}
				o.fcm.Set(func(k *fcmtest.Knobs) { k.Status = 0 })
				time.Sleep(2 * time.Minute)
				o.mustHaveSentAll()
				testkit.Equal(t, "attempts that were used up", 0, o.attempts())
			})
		})
	}
}

// When the push service accepts a message and cuts the connection, it is sent again, and the phone shows it once.
func TestReplyIsLost(t *testing.T) {
	t.Parallel()
	inBubble(t, 20, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.DropAfterAccept = 0.5 })
		o.relay(nil)
		o.offer()
		time.Sleep(time.Minute)
		o.fcm.Set(func(k *fcmtest.Knobs) { k.DropAfterAccept = 0 })
		time.Sleep(10 * time.Minute) // longer than any pause between two attempts
		if rows := o.rows(); rows["SENT sent"] != len(o.cars) {
			t.Errorf("ten minutes later: %v", rows)
		}
		_, again, visible, told := o.fcm.Totals()
		if again == 0 {
			t.Fatal("nothing was sent twice: the test shows nothing")
		}
		if visible != len(o.cars) || told != len(o.cars) {
			t.Errorf("%d phones show %d notifications, want one each on %d", told, visible, len(o.cars))
		}
	})
}

// A push whose payload is refused is DEAD, with the reason, and is sent after a redrive.
func TestPoison(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, func(t *testing.T, o *office) {
		o.fcm.Poison(phone(o.cars[1]))
		r := o.relay(nil)
		o.offer()
		o.eventually("one is dead", func() bool { return o.rows()["DEAD poison"] == 1 })
		o.eventually("the others are sent", func() bool { return o.rows()["SENT sent"] == len(o.cars)-1 })
		dead := o.notifications(outbox.Dead)
		if len(dead) != 1 || dead[0].Reason == "" || dead[0].Driver != o.cars[1].ID {
			t.Fatal(dead)
		}
		o.fcm.Cure()
		if _, err := o.store.Notifications.Redrive(t.Context(), dead[0].ID); err != nil {
			t.Fatal(err)
		}
		r.Wake()
		o.eventually("it is sent", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
	})
}

// An offer that was accepted while the push service hung is not sent any more.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	onDatabases(t, 40, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = true })
		o.timeout = max(o.timeout, 10*time.Second) // no place gets free before the relay knows of the accept
		o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.MaxInFlight = 4 })
		d := o.offer()
		o.eventually("the push service hangs", func() bool { return o.fcm.Requests() >= 4 })
		o.accept(d, o.cars[0])
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = false })
		o.eventually("the winner is told", func() bool { return o.shows(dispatch.EventAccepted) == 1 })
		o.eventually("nothing is pending", func() bool { return len(o.notifications(outbox.Pending)) == 0 })
		testkit.Equal(t, "phones that show an offer that is over", 0, o.shows(dispatch.EventOpened))
		if n := o.rows()["DROPPED superseded"]; n < len(o.cars)-8 {
			t.Errorf("%d of %d offers were dropped", n, len(o.cars))
		}
	})
}

// A relay that stops releases the pushes that it did not send: another sends them before the lease would have ended.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	onDatabases(t, 40, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = true })
		long := func(n *notify.RelayOptions, b *pushes.Options) {
			n.MaxInFlight, b.LeaseTerm, n.DrainTimeout = 4, time.Hour, 50*time.Millisecond
		}
		r := o.relay(long)
		o.offer()
		o.eventually("the push service hangs", func() bool { return o.fcm.Requests() >= 4 })
		r.stop()
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Hang = false })
		o.relayBeside(long)
		o.untilAllShow()
	})
}

// unsubscribed returns how many members of the topic the database has still to be subscribed, up to a hundred.
func (o *office) unsubscribed(topic string) int {
	o.t.Helper()
	members, err := o.store.Topics.TopicMembers(o.t.Context(), outbox.Topic{Name: topic}, 100)
	if err != nil {
		o.t.Fatal(err)
	}
	return len(members)
}

// One push to a topic tells a large audience that the offer is over. The audience is unsubscribed after the topic's release.
func TestTopic(t *testing.T) {
	t.Parallel()
	onDatabases(t, 30, func(t *testing.T, o *office) {
		o.relay(func(_ *notify.RelayOptions, b *pushes.Options) { b.TopicThreshold = 20 })
		d := o.offer()
		topic := outbox.TopicOf(d.ID)
		o.eventually("the audience is subscribed, and the database knows", func() bool {
			return len(o.fcm.Subscribers(topic)) == len(o.cars) && o.unsubscribed(topic) == 0
		})
		o.untilAllShow()
		o.eventually("all is settled", func() bool { return o.rows()["SENT sent"] == len(o.cars) })
		before := o.fcm.Requests()
		o.accept(d, o.cars[0])
		o.eventually("no phone shows the offer", func() bool { return o.shows(dispatch.EventOpened) == 0 })
		o.eventually("the winner is told", func() bool { return o.shows(dispatch.EventAccepted) == 1 })
		testkit.Equal(t, "subscribed phones", len(o.cars), len(o.fcm.Subscribers(topic)))
		if n, err := o.store.Topics.ScheduleTopicCleanup(t.Context()); n != 1 || err != nil {
			t.Errorf("released %d topics, %v", n, err)
		}
		o.eventually("nobody is subscribed", func() bool { return len(o.fcm.Subscribers(topic)) == 0 })
		if n := o.fcm.Requests() - before; n > 3 { // the winner, the topic, and an offer whose arrival was not known
			t.Errorf("%d requests to tell %d phones", n, len(o.cars))
		}
	})
}

// The metric of topics has the most that a phone is in, until they are released.
func TestTopicsPerDevice(t *testing.T) {
	t.Parallel()
	inBubble(t, 20, func(t *testing.T, o *office) {
		metrics := prometheus.NewRegistry()
		o.relay(func(n *notify.RelayOptions, b *pushes.Options) { b.TopicThreshold, n.Metrics = 20, metrics })
		most := func() float64 { return gauge(t, metrics, "firsttap_push_topics_per_device") }
		first, second := o.offer(), o.offer()
		time.Sleep(80 * time.Second)
		testkit.Equal(t, "topics of two offers", 2.0, most())
		o.accept(first, o.cars[0])
		o.accept(second, o.cars[1])
		time.Sleep(time.Minute)
		testkit.Equal(t, "topics that have ended and are not released", 2.0, most())
		if _, err := o.store.Topics.ScheduleTopicCleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		testkit.Equal(t, "topics after their release", 0.0, most())
	})
}

// A push service that refuses the calls for topics is called less and less, and not before it wants to be.
func TestTopicCallsAreRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, 30, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.TopicStatus, k.RetryAfter = 503, "100" })
		r := o.relay(func(_ *notify.RelayOptions, b *pushes.Options) { b.TopicThreshold = 20 })
		var topics []string
		for range 8 {
			topics = append(topics, outbox.TopicOf(o.offer().ID))
		}
		time.Sleep(50 * time.Second)
		r.stop()
		testkit.Run(t, r.Run) // the pause outlives a relay's run
		time.Sleep(49 * time.Second)
		testkit.Equal(t, "calls before Retry-After is over", 1, o.fcm.TopicCalls())
		time.Sleep(time.Hour)
		// After 100 s, 100 s, 120 s, 240 s, 480 s, and then every 600 s.
		if n := o.fcm.TopicCalls(); n < 9 || n > 10 {
			t.Errorf("%d calls in an hour", n)
		}
		o.fcm.Set(func(k *fcmtest.Knobs) { k.TopicStatus = 0 })
		time.Sleep(11 * time.Minute)
		for _, topic := range topics {
			testkit.Equal(t, "subscribed phones", len(o.cars), len(o.fcm.Subscribers(topic)))
		}
	})
}

// Offers of terms that were changed meanwhile are not sent any more.
func TestChangedTerms(t *testing.T) {
	t.Parallel()
	inBubble(t, 40, func(t *testing.T, o *office) {
		o.fcm.Set(func(k *fcmtest.Knobs) { k.Latency = 50 * time.Millisecond })
		o.relay(func(n *notify.RelayOptions, _ *pushes.Options) { n.MaxInFlight = 4 })
		d := o.offer()
		synctest.Wait() // until the first offers are under way
		_, err := o.store.Dispatches.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			terms := d.Terms
			terms.Fee.Amount++
			return d.Update(d.Version, terms, d.Window, "key_1", now)
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the relay knows the new terms
		var old atomic.Int32
		o.fcm.OnSend(func(r fcmtest.Request) {
			if r.Data["round"] == "1" {
				old.Add(1)
			}
		})
		o.eventually("all phones show the new terms", func() bool { return o.shows(dispatch.EventUpdated) == len(o.cars) })
		testkit.Equal(t, "offers of the old terms that were sent after the new ones were known", 0, old.Load())
	})
}

// The database becomes unreachable between the COMMIT of an event and its expansion: when it is back, the event is expanded
// at once, not when its lease ends.
func TestDatabaseIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	o := newOffice(t, repositorytest.URL(t, "mariadb"), 3)
	u, err := url.Parse(o.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := servertest.StartProxy(t, u.Host)
	o.url = proxy.URL(o.url)
	o.store = o.open(repository.Options{})
	o.relay(func(_ *notify.RelayOptions, b *pushes.Options) { b.LeaseTerm = time.Hour })
	d := o.offer()
	o.untilAllShow()
	hold := proxy.Hold("walk_event_id") // the statement that reads what is to be expanded
	o.accept(d, o.cars[0])
	<-hold.Reached()
	proxy.Refuse(true)
	hold.Release()
	proxy.Refuse(false)
	o.eventually("the winner is told", func() bool { return o.shows(dispatch.EventAccepted) == 1 })
}
