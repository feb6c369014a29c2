package stream

import (
	"testing"

	"firsttap/servertest"
	"firsttap/testkit"
)

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
	sentinel.Master().Kill()
	opens(a, here)
	sharedAgain(t, a, b, here, there)
}
