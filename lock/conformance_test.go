package lock_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/lock/locktest"
)

// minTTL is the shortest TTL of strategies whose servers have millisecond clocks.
const minTTL = 250 * time.Millisecond

func dial(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	client, err := redisclient.Dial(url, lock.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// What Locker and Leader do is the same with every strategy: here it is proved exactly.
func TestLockerAndLeader(t *testing.T) { locktest.Run(t, locktest.Simulated()) }

// conforms runs the suite, in `make test` only the tests of the scope.
func conforms(t *testing.T, rig locktest.Rig, scope locktest.Scope) {
	t.Parallel()
	if !testkit.All() {
		rig.Scope = scope
	}
	locktest.Run(t, rig)
}

func TestRedisConforms(t *testing.T)  { conforms(t, singleRedisRig(), locktest.Faults) }
func TestQuorumConforms(t *testing.T) { conforms(t, quorumRig(), locktest.Faults) }

func singleRedisRig() locktest.Rig {
	return redisRig(1, func(t testing.TB, urls []string) lock.Strategy {
		return lock.NewRedis(dial(t, urls[0]), lock.TaggedKeys("lock"))
	})
}

func quorumRig() locktest.Rig {
	rig := redisRig(3, func(t testing.TB, urls []string) lock.Strategy {
		var nodes []*lock.Redis
		for _, url := range urls {
			nodes = append(nodes, lock.NewRedis(dial(t, url), lock.ShedLockKeys("job-lock", "default")))
		}
		q, err := lock.NewQuorum(nodes...)
		if err != nil {
			t.Fatal(err)
		}
		return q
	})
	rig.MayRefuseAll = true
	rig.MinTTL = 3 * time.Second // a vote takes two requests, and the name has to be held at the second, on a busy machine too
	start := rig.Start
	rig.Start = func(t testing.TB) locktest.Server {
		s := start(t)
		s.Kill, s.Start = nil, nil
		return s
	}
	rig.Missing = map[string]string{"Kill": "a renewal restores the lease on servers that start one after another"}
	return rig
}

// withoutLinks adds the hooks of links to missing: the clients of a Cluster connect to the addresses of its nodes, and those
// of a Sentinel to the master's.
func withoutLinks(missing map[string]string) map[string]string {
	missing["StartSkewed"] = "a single server's is enough"
	for _, hook := range []string{"Link", "Partition", "Delay", "Cut", "LoseReply", "HoldRequest"} {
		missing[hook] = "clients connect to the servers directly"
	}
	return missing
}

func TestRedisClusterConforms(t *testing.T) {
	conforms(t, locktest.Rig{
		Open: openRedis,
		Start: func(t testing.TB) locktest.Server {
			cluster := servertest.StartRedisCluster(t)
			nodes := redisServers{t, cluster.Nodes[:]}
			return locktest.Server{
				URL: cluster.URL(), Flush: nodes.flush,
				Freeze: nodes.each((*servertest.Redis).Freeze), Thaw: nodes.each((*servertest.Redis).Thaw),
			}
		},
		MinTTL:  minTTL,
		Missing: withoutLinks(map[string]string{"Kill": "nodes that are new to each other again are no cluster"}),
	}, locktest.Contract)
}

func TestRedisSentinelConforms(t *testing.T) {
	const failover = "the sentinels would make the replica the master"
	conforms(t, locktest.Rig{
		Open: openRedis,
		Start: func(t testing.TB) locktest.Server {
			s := servertest.StartRedisSentinel(t)
			return locktest.Server{URL: s.URL(), Flush: redisServers{t, []*servertest.Redis{s.Master}}.flush}
		},
		MinTTL:  minTTL,
		Missing: withoutLinks(map[string]string{"Kill": failover, "Freeze": failover}),
	}, locktest.Contract)
}

func openRedis(t testing.TB, url string, _ time.Duration) lock.Strategy {
	return lock.NewRedis(dial(t, url), lock.TaggedKeys("lock"))
}

// redisRig is for a strategy on n Redis servers that are broken together. Of skewed servers, only the first has the
// wrong clock. Their URLs are joined by spaces.
func redisRig(n int, open func(t testing.TB, urls []string) lock.Strategy) locktest.Rig {
	start := func(t testing.TB, first *servertest.Redis) locktest.Server {
		all := []*servertest.Redis{first}
		for range n - 1 {
			all = append(all, servertest.StartRedis(t))
		}
		return redisServers{t, all}.server()
	}
	return locktest.Rig{
		Open: func(t testing.TB, url string, _ time.Duration) lock.Strategy {
			return open(t, strings.Fields(url))
		},
		Start: func(t testing.TB) locktest.Server { return start(t, servertest.StartRedis(t)) },
		StartSkewed: func(t testing.TB, offset time.Duration) locktest.Server {
			return start(t, servertest.StartRedisSkewed(t, offset))
		},
		MinTTL:   minTTL,
		Volatile: true,
	}
}

// redisServers are broken together.
type redisServers struct {
	t   testing.TB
	all []*servertest.Redis
}

func (s redisServers) server() locktest.Server {
	var urls []string
	for _, r := range s.all {
		urls = append(urls, r.URL())
	}
	return locktest.Server{
		URL: strings.Join(urls, " "), Link: s.link, Flush: s.flush,
		Freeze: s.each((*servertest.Redis).Freeze), Thaw: s.each((*servertest.Redis).Thaw),
		Kill: s.each((*servertest.Redis).Kill), Start: s.each((*servertest.Redis).Start),
	}
}

func (s redisServers) each(do func(*servertest.Redis)) func() {
	return func() {
		for _, r := range s.all {
			do(r)
		}
	}
}

// flush has the servers flush at once: a renewal between two of them would restore the lease on the first one. Each server is
// frozen until all have the command.
func (s redisServers) flush() {
	conns := make([]net.Conn, len(s.all))
	for i, r := range s.all {
		var err error
		if conns[i], err = new(net.Dialer).DialContext(context.Background(), "tcp", r.Addr()); err != nil {
			s.t.Fatal(err)
		}
		defer conns[i].Close()
	}
	s.each((*servertest.Redis).Freeze)()
	for _, c := range conns {
		if _, err := c.Write([]byte("FLUSHALL\r\n")); err != nil {
			s.t.Error(err)
		}
	}
	s.each((*servertest.Redis).Thaw)()
	for _, c := range conns {
		if reply, err := bufio.NewReader(c).ReadString('\n'); err != nil || reply != "+OK\r\n" {
			s.t.Errorf("FLUSHALL: %q, %v", reply, err)
		}
	}
}

// link returns a Link to all the servers.
func (s redisServers) link(t testing.TB) locktest.Link {
	var proxies []*servertest.Proxy
	var urls []string
	for _, r := range s.all {
		p := servertest.StartProxy(t, r.Addr())
		proxies, urls = append(proxies, p), append(urls, p.URL(r.URL()))
	}
	link := linkOf(t, proxies)
	link.URL = strings.Join(urls, " ")
	return link
}

// linkOf returns a Link through the proxies, without a URL. It matches the requests that contain the name.
func linkOf(t testing.TB, proxies []*servertest.Proxy) locktest.Link {
	return locktest.Link{
		Partition: func(on bool) {
			for _, p := range proxies {
				p.Blackhole(on)
			}
		},
		Delay: func(d time.Duration) {
			for _, p := range proxies {
				p.Delay(d)
			}
		},
		Cut: func() {
			for _, p := range proxies {
				p.CutAll()
			}
		},
		LoseReply: func(name string, _ locktest.Request) <-chan struct{} {
			return loseReply(t, proxies, name)
		},
		HoldRequest: func(name string, _ locktest.Request) (<-chan struct{}, func()) {
			var holds []*servertest.Hold
			for _, p := range proxies {
				holds = append(holds, p.Hold(name))
			}
			return holds[0].Reached(), func() {
				for _, h := range holds {
					h.Release()
				}
			}
		},
	}
}

// loseReply loses each proxy's reply to its next request that contains text. The channel is closed with the first loss.
func loseReply(t testing.TB, proxies []*servertest.Proxy, text string) <-chan struct{} {
	lost := make(chan struct{})
	once := sync.OnceFunc(func() { close(lost) })
	for _, p := range proxies {
		cut := p.CutReply(text)
		go func() {
			select {
			case <-cut.Done():
				once()
			case <-t.Context().Done():
			}
		}()
	}
	return lost
}
