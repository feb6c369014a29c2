package push

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
	"firsttap/systemtest"
)

// company is an instance with its drivers, which may have webhook endpoints.
type company struct {
	name     string
	instance *systemtest.Instance
	db       *systemtest.Database
	pushes   *arrivals
	receiver *systemtest.Receiver
	drivers  []systemtest.Driver
	// pushed and delivered are the times from an event to its first push and to its delivery to the endpoint that is well; tapped is how
	// long a winner's tap takes.
	pushed, delivered, tapped samples
	dispatches                []string
}

// well is the endpoint that answers, hanging the one that does not.
const well, hanging = "/well", "/hanging"

func newCompany(b *testing.B, db *servertest.Database, name string, endpoints ...string) *company {
	b.Helper()
	fcm, url := systemtest.StartFCM(b), db.URL(b)
	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = fcmLatency })
	c := &company{name: name, receiver: systemtest.StartReceiver(b), db: systemtest.OpenDatabase(b, url), pushes: recordArrivals(fcm)}
	c.instance = systemtest.Start(b, systemtest.PushSettings(url, fcm, "demo", systemtest.PrivateWebhooks, "FIRSTTAP_REDIS_URL="+servertest.RedisURL(b),
		systemtest.QuickRedis, systemtest.QuickClaims)...)
	c.drivers = systemtest.MakeDriversWithPhones(b, c.instance, "seoul", 5)
	for _, endpoint := range endpoints {
		if endpoint == hanging {
			c.receiver.Hang(endpoint)
		}
		systemtest.MakeWebhook(b, c.instance, c.receiver.URL(endpoint))
	}
	return c
}

// sample makes a dispatch, waits until all is pushed, and has a driver win it.
func (c *company) sample(b *testing.B) {
	b.Helper()
	id := systemtest.MakeDispatch(b, c.instance)
	testkit.Eventually(b, "all are pushed", func() bool { return len(c.pushes.of(id)) >= len(c.drivers) })
	at := slices.MinFunc(c.pushes.of(id), time.Time.Compare)
	c.pushed.add(at.Sub(c.times(b, id)["dispatch.created"]))
	tapped := time.Now()
	if a := systemtest.Accept(c.instance, id, c.drivers[0], 1); !a.Won() {
		b.Fatalf("%s: %s", c.name, a)
	}
	c.tapped.add(time.Since(tapped))
	c.dispatches = append(c.dispatches, id)
}

// times are when the dispatch's events happened, by type.
func (c *company) times(b *testing.B, id string) map[string]time.Time {
	b.Helper()
	rows, err := c.db.DB.Query("SELECT type, at FROM events WHERE dispatch_id=?", id)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	times := map[string]time.Time{}
	for rows.Next() {
		var name string
		var us int64
		if err := rows.Scan(&name, &us); err != nil {
			b.Fatal(err)
		}
		times[name] = time.UnixMicro(us)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return times
}

// measureDeliveries waits for the deliveries to the endpoint that is well: each event of each dispatch once, in order.
func (c *company) measureDeliveries(b *testing.B) {
	b.Helper()
	const each = 2 // created, accepted
	at := map[string]map[string]time.Time{}
	testkit.Eventually(b, "all webhooks are delivered", func() bool {
		n := 0
		for _, a := range c.receiver.Arrivals(well) {
			if at[a.Dispatch] == nil {
				at[a.Dispatch] = map[string]time.Time{}
			}
			if _, again := at[a.Dispatch][a.Type]; !again {
				at[a.Dispatch][a.Type] = a.At
			}
		}
		for _, events := range at {
			n += len(events)
		}
		return n >= each*len(c.dispatches)
	})
	for _, id := range c.dispatches {
		for name, happened := range c.times(b, id) {
			if arrived, ok := at[id][name]; ok {
				c.delivered.add(arrived.Sub(happened))
			} else {
				b.Errorf("%s: %s of %s was not delivered", c.name, name, id)
			}
		}
	}
}

// What webhooks cost pushes, taps and each other: a FirstTap without endpoints, one with an endpoint that is well, and one with another
// endpoint that never answers, in turn on one machine, which they share with FCM, the phones and the receiver. More events wait for the
// endpoint that hangs than it may have attempts under way. It hangs for FIRSTTAP_HANG, such as 1h, over which the samples are spread;
// without, for as long as they take.
func BenchmarkPushBesideWebhooks(b *testing.B) {
	const rounds = 300
	hang, err := time.ParseDuration(cmp.Or(os.Getenv("FIRSTTAP_HANG"), "0s"))
	if err != nil {
		b.Fatalf("FIRSTTAP_HANG: %v", err)
	}
	db := servertest.StartMariaDB(b)
	none, one := newCompany(b, db, "no endpoint"), newCompany(b, db, "an endpoint", well)
	hangs := newCompany(b, db, "one more that hangs", well, hanging)
	all := []*company{none, one, hangs}
	for range 40 { // opens connections, and fills the attempts that the endpoint that hangs may have
		for _, c := range all {
			c.sample(b)
		}
	}
	testkit.Eventually(b, "the endpoint that hangs has all its attempts under way", func() bool { return len(hangs.receiver.Arrivals(hanging)) >= 16 })
	for _, c := range all {
		c.pushed, c.tapped = nil, nil
	}
	for round := range rounds {
		for k := range all {
			pauseAtRandom(b.Context(), max(20*time.Millisecond, hang/time.Duration(rounds*len(all))))
			all[(round+k)%len(all)].sample(b)
		}
	}
	one.measureDeliveries(b)
	hangs.measureDeliveries(b)
	if n := len(none.receiver.Arrivals("")); n > 0 {
		b.Errorf("%d deliveries without an endpoint", n)
	}
	if n := hangs.db.Count("webhook_deliveries WHERE status <> 'DELIVERED'"); n < rounds {
		b.Errorf("only %d deliveries wait for the endpoint that hangs", n)
	}
	compare := func(what string, these, those samples) {
		ratio := float64(these.at(.5)) / float64(those.at(.5))
		low, high := between(these.chunks(10), those.chunks(10))
		b.Logf("%-44s p50 x%.3f, p99 x%.3f (95%%: %.2f to %.2f)", what, ratio, float64(these.at(.99))/float64(those.at(.99)), low, high)
	}
	compare("a push beside an endpoint, to none", one.pushed, none.pushed)
	compare("a push beside one that hangs, to none", hangs.pushed, none.pushed)
	compare("a tap beside an endpoint, to none", one.tapped, none.tapped)
	compare("a tap beside one that hangs, to none", hangs.tapped, none.tapped)
	compare("a delivery beside one that hangs, to alone", hangs.delivered, one.delivered)
	for _, c := range all {
		b.Logf("%-20s push:     %s", c.name, c.pushed)
		b.Logf("%-20s tap:      %s", "", c.tapped)
		if len(c.delivered) > 0 {
			b.Logf("%-20s delivery: %s", "", c.delivered)
		}
	}
	b.ReportMetric(float64(hangs.pushed.at(.5))/float64(none.pushed.at(.5)), "x-push")
	b.ReportMetric(float64(hangs.tapped.at(.5))/float64(none.tapped.at(.5)), "x-tap")
	b.ReportMetric(float64(hangs.delivered.at(.5))/float64(one.delivered.at(.5)), "x-delivery")
	b.ReportMetric(0, "ns/op")
}
