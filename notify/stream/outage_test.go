package stream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// TestRedisAway: during an outage an instance delivers its own events; afterwards every client gets a resync and the events
// of all instances, and can resume on any.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		silent bool // Redis does not answer, and nothing says so
		outage func(r *servertest.Redis, p *servertest.Proxy) (begin, end func())
	}{
		"killed": {false, func(r *servertest.Redis, _ *servertest.Proxy) (begin, end func()) { return r.Kill, r.Start }},
		"in a black hole": {true, func(_ *servertest.Redis, p *servertest.Proxy) (begin, end func()) {
			return func() { p.Blackhole(true) }, func() { p.Blackhole(false) }
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t)
			proxy := servertest.StartProxy(t, server.Addr())
			begin, end := c.outage(server, proxy)
			impatient := func(o *Options) {
				if c.silent {
					o.Redis, o.RedisTimeout = dialWithin(t, proxy.URL(server.URL()), time.Second), time.Second
				}
			}
			a, b := instance(t, proxy.URL(server.URL()), impatient), instance(t, proxy.URL(server.URL()), impatient)
			idle := instance(t, proxy.URL(server.URL()), impatient) // it has no clients
			v := kim()
			here, there, driver := adminStream(t, a, ""), adminStream(t, b, ""), driverStream(t, a, v, "")
			delivered(t, a, here, there, driver)
			earlier := here.lastID()

			begin()
			var away []dispatch.Event
			for range 20 {
				away = append(away, opens(a))
			}
			here.get(away...)
			driver.get(away...)
			testkit.Eventually(t, "all know", func() bool {
				return a.queue.localOnly() && b.queue.localOnly() && idle.queue.localOnly()
			})
			if there.has(away[0].ID) {
				t.Error("another instance got the event without Redis")
			}
			at := driver.lastID()

			end()
			for _, c := range []*client{here, there, driver} {
				c.readsAgain("after the outage")
			}
			delivered(t, b, here, there, driver)
			for _, c := range []*client{here, there, driver} {
				c.readsAgain("once for each outage")
			}
			// An instance can't know whether the Redis that is back has lost entries.
			for _, h := range []*Hub{b, idle} {
				testkit.Eventually(t, "shared again", func() bool { return !h.queue.localOnly() })
				adminStream(t, h, earlier).readsAgain("after an outage elsewhere")
			}
			// A client can't resume from an id of local-only mode.
			driverStream(t, b, v, at).readsAgain("after a move")
			resumes := func() bool {
				moved := adminStream(t, b, here.lastID())
				defer moved.hangUp()
				delivered(t, a, moved)
				return moved.count("resync") == 0
			}
			if c.silent { // a busy machine may look like another outage
				testkit.Eventually(t, "a client that has had its resync gets no other one after a move", resumes)
			} else if !resumes() {
				t.Error("a client that has had its resync gets another one after a move")
			}
		})
	}
}

// TestStartWithoutRedis: an instance that starts without Redis connects when Redis comes up.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	server.Kill()
	log := &testkit.LogBuffer{}
	h := runHub(t, Options{Redis: dial(t, server.URL()), Log: slog.New(slog.NewTextHandler(log, nil))})
	c := adminStream(t, h, "")
	opens(h, c)
	server.Start()
	other := instance(t, server.URL())
	c.readsAgain("when Redis came up")
	opens(other, c)
	if log.Count("starts without Redis") != 1 || log.Count("lost Redis") != 0 || log.Count("reconnected") != 1 {
		t.Error(log)
	}
}

// dialCounter counts the connections that a client opens.
type dialCounter struct{ atomic.Int32 }

func (c *dialCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.Add(1)
		return next(ctx, network, addr)
	}
}
func (*dialCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (*dialCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestOutageIsLoggedOnce: however long an outage lasts, its begin and its end are one line each, and it counts once.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.Addr())
	client := dial(t, proxy.URL(server.URL()))
	var dials dialCounter
	client.AddHook(&dials)
	log := &testkit.LogBuffer{}
	h := runHub(t, Options{Redis: client, Log: slog.New(slog.NewTextHandler(log, nil))})
	testkit.Eventually(t, "shared", func() bool { return !h.queue.localOnly() })
	proxy.Refuse(true)
	before := dials.Load()
	testkit.Eventually(t, "several attempts to reconnect", func() bool { return dials.Load() > before+5 })
	proxy.Refuse(false)
	testkit.Eventually(t, "shared again", func() bool { return !h.queue.localOnly() && log.Count("reconnected") > 0 })
	if log.Count("lost Redis") != 1 || log.Count("reconnected") != 1 || testutil.ToFloat64(h.metrics.outages) != 1 {
		t.Errorf("%v outages: %s", testutil.ToFloat64(h.metrics.outages), log)
	}
}

// TestOneInstanceCutOff: after one instance's outage the others get its events, or a resync if there were too many, also when
// Redis is lost again just before it.
func TestOneInstanceCutOff(t *testing.T) {
	t.Parallel()
	for what, n := range map[string]int{"a little": 20, "too much": 500} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			i := startTwo(t, func(o *Options) { o.QueueSize = 100 })
			i.proxy.Refuse(true)
			var away []dispatch.Event
			for len(away) < n {
				for range 20 { // fewer than the queue holds
					away = append(away, opens(i.a))
				}
				i.here.get(away[len(away)-1])
			}
			if n > 100 {
				gap := i.proxy.Hold("$3\r\ngap\r\n")
				i.proxy.Refuse(false)
				<-gap.Reached()
				i.proxy.Refuse(true) // and the gap is lost
			}
			i.proxy.Refuse(false)
			i.there.get(away[n-1])
			if n > 100 {
				i.there.readsAgain("what did not fit into the queue", i.a)
				return
			}
			away = append(away, opens(i.a, i.there))
			testkit.Equal(t, "the events that happened", subjects(away), heardSubjects(i.there))
		})
	}
}

// TestLostReply: an entry whose XADD reply was lost is delivered once.
func TestLostReply(t *testing.T) {
	t.Parallel()
	i := startTwo(t)
	hold := i.proxy.Hold("xrange")
	<-hold.Reached() // the instance reads nothing back until it has published the event again
	cut := i.proxy.CutReply("xadd")
	e := opens(i.a)
	<-cut.Done()
	i.here.get(e)
	hold.Release()
	i.here.readsAgain("after the outage")
	next := opens(i.a, i.here, i.there)
	testkit.Equal(t, "the events", subjects([]dispatch.Event{e, next}), heardSubjects(i.there))
	copies := 0
	for _, entry := range dial(t, i.server.URL()).XRange(t.Context(), testStream, "-", "+").Val() {
		if strings.Contains(fmt.Sprint(entry.Values["body"]), string(e.ID)) {
			copies++
		}
	}
	testkit.Equal(t, "copies of the event in Redis", 2, copies)
}

// TestOnItsWay: an entry that was not read back before an outage is delivered all the same.
func TestOnItsWay(t *testing.T) {
	t.Parallel()
	i := startTwo(t)
	hold := i.proxy.Hold("xrange")
	<-hold.Reached() // the reader is blocked now
	e := opens(i.a, i.there)
	if i.here.has(e.ID) {
		t.Error("read: the test shows nothing")
	}
	i.proxy.Refuse(true)
	i.here.get(e)
	hold.Release()
}

// TestEntriesGone: after any loss of entries in Redis every client gets a resync, and later events.
func TestEntriesGone(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(ctx context.Context, r redis.UniversalClient) error{
		"flushed": func(ctx context.Context, r redis.UniversalClient) error { return r.FlushAll(ctx).Err() },
		"trimmed": func(ctx context.Context, r redis.UniversalClient) error {
			return r.XTrimMaxLen(ctx, testStream, 0).Err()
		},
		"behind, as a replica is": func(ctx context.Context, r redis.UniversalClient) error {
			newest, err := r.XRevRangeN(ctx, testStream, "+", "-", 1).Result()
			if err != nil {
				return err
			}
			return r.XDel(ctx, testStream, newest[0].ID).Err()
		},
		"begun anew by another": func(ctx context.Context, r redis.UniversalClient) error {
			_, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Del(ctx, testStream)
				p.XAdd(ctx, &redis.XAddArgs{Stream: testStream, ID: "5-5", Values: []any{"kind", "mark"}})
				return nil
			})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			i := startTwo(t)
			driver := driverStream(t, i.b, kim(), "")
			opens(i.a, i.here, driver)
			if err := lose(t.Context(), dial(t, i.server.URL())); err != nil {
				t.Fatal(err)
			}
			sharedAgain(t, i.a, i.b, i.here, driver)
		})
	}
}

// sharedAgain waits until both clients got a resync and later events of either instance.
func sharedAgain(t *testing.T, a, b *Hub, here, there *client) {
	t.Helper()
	testkit.Eventually(t, "to read again", func() bool { return here.count("resync") > 0 && there.count("resync") > 0 })
	for _, h := range []*Hub{a, b} {
		delivered(t, h, here, there)
	}
}

// TestClockBehind: after Redis's clock was set back, the lower ids do not count as old ones.
func TestClockBehind(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	direct := dial(t, server.URL())
	tomorrow := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10) + "-0"
	if err := direct.XAdd(t.Context(), &redis.XAddArgs{Stream: testStream, ID: tomorrow, Values: []any{"kind", "mark"}}).Err(); err != nil {
		t.Fatal(err)
	}
	a, b := instance(t, server.URL()), instance(t, server.URL())
	here, there := adminStream(t, a, ""), adminStream(t, b, "")
	opens(a, here, there)
	old := here.lastID()
	server.Kill()
	server.Start()
	sharedAgain(t, a, b, here, there)
	if now := here.lastID(); !before(now, old) {
		t.Errorf("%s is not before %s: the test shows nothing", now, old)
	}
}

// TestWakesOthers: a wake on one instance wakes the relays of all.
func TestWakesOthers(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	var wokenA, wokenB atomic.Int32
	a := instance(t, server.URL(), func(o *Options) { o.OnWakeRelay = func() { wokenA.Add(1) } })
	instance(t, server.URL(), func(o *Options) { o.OnWakeRelay = func() { wokenB.Add(1) } })
	a.WakeRelays()
	testkit.Eventually(t, "both", func() bool { return wokenA.Load() > 0 && wokenB.Load() > 0 })
}

// TestDutyElsewhere: a change on one instance applies to the streams of another; after a loss the driver is loaded again.
func TestDutyElsewhere(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	a, b := instance(t, server.URL()), instance(t, server.URL())
	v := kim()
	var row atomic.Pointer[dispatch.Driver]
	row.Store(&v)
	s, err := b.OpenDriver(t.Context(), v.ID, "", func(context.Context) (dispatch.Driver, error) { return *row.Load(), nil })
	c := listen(t, s, err).greeted()
	offered := func() bool {
		opened, end := opens(a), happens(a, job(), dispatch.EventExpired, "")
		c.get(end)
		return c.has(opened.ID)
	}
	if !offered() {
		t.Error("on duty: no event")
	}
	v.OnDuty, v.Version = false, 2
	if a.DriverChanged(v); offered() {
		t.Error("off duty: an event")
	}
	again := v
	again.OnDuty, again.Version = true, 3
	row.Store(&again)
	if err := dial(t, server.URL()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "to read again", func() bool { return c.count("resync") > 0 })
	testkit.Eventually(t, "on duty again", offered)
}

// TestEndWithoutRedis: a hub ends while Redis hangs, and delivers its last events to its own clients.
func TestEndWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	h, stop := startHub(t, Options{Redis: dial(t, server.URL()), RedisTimeout: time.Second})
	testkit.Eventually(t, "shared", func() bool { return !h.queue.localOnly() })
	c := adminStream(t, h, "")
	server.Freeze()
	e := opens(h)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	testkit.Await(t, "the end, though Redis does not answer", ended)
	<-c.ended
	if !c.has(e.ID) {
		t.Error("no event")
	}
}

// TestRedisRefusesEntries: a Redis that answers reads and refuses entries is noticed before there is an event, and used again when it takes
// them.
func TestRedisRefusesEntries(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	may := func(rule string) {
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	h := instance(t, server.URL())
	testkit.Eventually(t, "Redis is in use", func() bool { return !h.Degraded() })
	may("-xadd")
	testkit.Eventually(t, "the refusal is noticed", h.Degraded)
	may("+xadd")
	testkit.Eventually(t, "Redis is in use again", func() bool { return !h.Degraded() })
}
