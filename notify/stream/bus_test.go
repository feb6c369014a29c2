package stream

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// dial returns a client as the service makes it, but for its timeouts.
func dial(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	return dialWithin(t, url, patient)
}

func dialWithin(t testing.TB, url string, timeout time.Duration) redis.UniversalClient {
	t.Helper()
	client, err := redisclient.Dial(url, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// two are instances on a Redis of their own, the first behind a proxy, each with an admin's stream.
type two struct {
	server      *servertest.Redis
	proxy       *servertest.Proxy
	a, b        *Hub
	here, there *client
}

func startTwo(t testing.TB, changeA ...func(*Options)) *two {
	t.Helper()
	i := &two{server: servertest.StartRedis(t)}
	i.proxy = servertest.StartProxy(t, i.server.Addr())
	i.a, i.b = instance(t, i.proxy.URL(i.server.URL()), changeA...), instance(t, i.server.URL())
	i.here, i.there = adminStream(t, i.a, ""), adminStream(t, i.b, "")
	return i
}

// instance returns a hub that is connected to the Redis at url.
func instance(t testing.TB, url string, change ...func(*Options)) *Hub {
	t.Helper()
	o := Options{Redis: dial(t, url)}
	for _, c := range change {
		c(&o)
	}
	h := runHub(t, o)
	testkit.Eventually(t, "shared", func() bool { return !h.queue.localOnly() })
	<-h.loaded
	return h
}

// ids returns the ids, names and event ids of the messages that a client got.
func (c *client) ids() (ids []string) {
	for _, e := range c.all() {
		ids = append(ids, e.id+" "+e.event+" "+e.subject())
	}
	return ids
}

// publish publishes n openings from each hub, all hubs at once, without filling a queue.
func publish(t testing.TB, n int, hubs ...*Hub) {
	testkit.Together(2*len(hubs), func(k int) {
		h := hubs[k/2]
		for range n / 2 / len(hubs) {
			opens(h)
			tick := time.NewTicker(time.Millisecond)
			for waiting(h) > 1000 && t.Context().Err() == nil {
				<-tick.C
			}
			tick.Stop()
		}
	})
}

func TestSameEventsOnAllInstances(t *testing.T) {
	t.Parallel()
	i := startTwo(t)
	driver := driverStream(t, i.b, kim(), "")
	publish(t, 1000, i.a, i.b)
	for _, c := range []*client{i.here, i.there, driver} {
		testkit.Eventually(t, "all", func() bool { return len(c.all()) == 1000 })
	}
	testkit.Equal(t, "the other instance's", i.here.ids(), i.there.ids())
	testkit.Equal(t, "a driver's", i.here.ids(), driver.ids())
	testkit.Eventually(t, "empty queues", func() bool { return waiting(i.a) == 0 && waiting(i.b) == 0 })
}

// TestLastWords: events that an instance published before its end are delivered, also those that still wait for Redis.
func TestLastWords(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	there := adminStream(t, instance(t, server.URL()), "")
	for range testkit.Scale(3, 20) {
		ends, stop := startHub(t, Options{Redis: dial(t, server.URL())})
		testkit.Eventually(t, "shared", func() bool { return !ends.queue.localOnly() })
		var all []dispatch.Event
		for range 300 {
			all = append(all, opens(ends))
		}
		stop()
		testkit.Eventually(t, "delivered", func() bool { return there.has(all[len(all)-1].ID) || there.count("resync") > 0 })
		for _, e := range all {
			if !there.has(e.ID) {
				t.Fatal("not all events arrived")
			}
		}
	}
}

// TestMovesToAnInstanceThatIsBehind: a client moves to an instance that has not yet read the client's last message.
func TestMovesToAnInstanceThatIsBehind(t *testing.T) {
	t.Parallel()
	i := startTwo(t)
	ahead, behind := i.b, i.a
	v := kim()
	driver, admin := driverStream(t, ahead, v, ""), i.there
	i.proxy.Delay(300 * time.Millisecond)
	heard := opens(ahead, driver, admin)
	driver, admin = driverStream(t, behind, v, driver.hangUp()), adminStream(t, behind, admin.hangUp())
	opens(ahead, driver, admin)
	for _, c := range []*client{driver, admin} {
		if c.count("resync") > 0 || c.has(heard.ID) {
			t.Errorf("%d resyncs, event repeated: %v", c.count("resync"), c.has(heard.ID))
		}
	}
}

// TestMovingClient moves clients between two instances during thousands of events: they miss none, get none twice, and get
// no resync.
func TestMovingClient(t *testing.T) {
	t.Parallel()
	events := testkit.Scale(1000, 5000)
	server := servertest.StartRedis(t)
	hubs := []*Hub{instance(t, server.URL()), instance(t, server.URL())}
	stays := adminStream(t, hubs[0], "")
	v := kim()
	driver, admin := driverStream(t, hubs[1], v, ""), adminStream(t, hubs[0], "")
	var ofDriver, ofAdmin []string
	const moves = 10
	for move := range moves {
		var publishing sync.WaitGroup
		publishing.Go(func() { publish(t, events/moves, hubs...) })
		some := move*events/moves + events/moves/4
		testkit.Eventually(t, "some of the events", func() bool {
			return len(ofDriver)+len(driver.all()) > some && len(ofAdmin)+len(admin.all()) > some
		})
		driverAt, adminAt := driver.hangUp(), admin.hangUp()
		ofDriver, ofAdmin = append(ofDriver, driver.ids()...), append(ofAdmin, admin.ids()...)
		driver, admin = driverStream(t, hubs[move%2], v, driverAt), adminStream(t, hubs[(move+1)%2], adminAt)
		publishing.Wait()
	}
	testkit.Eventually(t, "all", func() bool {
		return len(stays.all()) == events && len(ofDriver)+len(driver.all()) >= events && len(ofAdmin)+len(admin.all()) >= events
	})
	ofDriver, ofAdmin = append(ofDriver, driver.ids()...), append(ofAdmin, admin.ids()...)
	testkit.Equal(t, "what an admin who moved got", stays.ids(), ofAdmin)
	testkit.Equal(t, "what a driver who moved got", stays.ids(), ofDriver)
}

// TestNewInstance: a client may resume on an instance that started after the events that the client missed.
func TestNewInstance(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	a := instance(t, server.URL())
	c := adminStream(t, a, "")
	opens(a, c)
	at := c.hangUp()
	stays := adminStream(t, a, at)
	publish(t, 1200, a)
	testkit.Eventually(t, "all", func() bool { return len(stays.all()) == 1200 })
	b := instance(t, server.URL())
	moved := adminStream(t, b, at)
	testkit.Eventually(t, "all, again", func() bool { return len(moved.all()) == 1200 })
	testkit.Equal(t, "what the client on the new instance got", stays.ids(), moved.ids())
	small := instance(t, server.URL(), func(o *Options) { o.RingSize = 100 })
	if late := adminStream(t, small, at); true {
		testkit.Eventually(t, "to read again", func() bool { return len(late.all()) > 0 })
		testkit.Equal(t, "what the late client got", []string{"resync"}, late.names())
		testkit.Equal(t, "where the late client goes on", moved.lastID(), late.lastID())
	}
}

// TestOpenedWhileStarting: a client that resumes on an instance that is still filling its ring gets no resync.
func TestOpenedWhileStarting(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	a := instance(t, server.URL())
	c := adminStream(t, a, "")
	at := c.lastID()
	e := opens(a, c)

	proxy := servertest.StartProxy(t, server.Addr())
	hold := proxy.Hold("xrevrange")
	b := runHub(t, Options{Redis: dial(t, proxy.URL(server.URL()))})
	<-hold.Reached()
	opened := make(chan *Stream, 1)
	go func() {
		s, err := b.OpenAdmin(t.Context(), "key_1", at)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	select {
	case <-opened:
		t.Fatal("opened before there was anything to resume from")
	case <-time.After(20 * time.Millisecond): //nolint:forbidigo // the stream must not open meanwhile
	}
	hold.Release()
	moved := listen(t, <-opened, nil)
	moved.get(e)
	testkit.Equal(t, "resyncs", 0, moved.count("resync"))
}

// TestOnACluster: the bus is one key, so it works on a cluster.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.StartRedisCluster(t)
	a, b := instance(t, cluster.URL()), instance(t, cluster.URL())
	here, there := adminStream(t, a, ""), adminStream(t, b, "")
	publish(t, 500, a, b)
	for _, c := range []*client{here, there} {
		testkit.Eventually(t, "all", func() bool { return len(c.all()) == 500 })
	}
	if here.ids()[499] != there.ids()[499] || here.count("resync")+there.count("resync") > 0 {
		t.Errorf("%s here, %s there", here.ids()[499], there.ids()[499])
	}
}

// TestFailover: after a failover every client gets a resync, and events pass through the new master.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinel := servertest.StartRedisSentinel(t)
	a, b := instance(t, sentinel.URL()), instance(t, sentinel.URL())
	here, there := adminStream(t, a, ""), driverStream(t, b, kim(), "")
	opens(a, here, there)
	sentinel.KillMaster(t)
	delivered(t, a, here)
	sharedAgain(t, a, b, here, there)
}
