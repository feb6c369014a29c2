package systemtest

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

func databaseURL(url string) string { return "FIRSTTAP_DATABASE_URL=" + url }

// oneOfEach has a MariaDB, a Redis and two instances. Each is killed, and Redis is also frozen for a while.
func oneOfEach(tr *trial) deployment {
	t := tr.t
	db, r := servertest.StartMariaDB(t), servertest.StartRedis(t)
	url := db.URL(t)
	return deployment{
		settings: both(databaseURL(url), "FIRSTTAP_REDIS_URL="+r.URL()),
		current:  func() string { return url },
		faults: []fault{
			{"Redis is killed, and started again later", func() func() { r.Kill(); return r.Start }},
			{"Redis is frozen, and goes on later", func() func() { r.Freeze(); return r.Thaw }},
			{"the database is killed, and started again at once", func() func() { db.Kill(); db.Start(); return func() {} }},
			{"an instance is killed, and another started later", tr.killInstance},
		},
	}
}

// replicatedRedis has masters, from which replicas take over.
type replicatedRedis interface {
	URL() string
	FailOver(t testing.TB, stop func(*servertest.Redis)) (old *servertest.Redis)
	Await(t testing.TB)
}

// masterFault is how a master fails, and how it comes back.
type masterFault struct {
	name         string
	stop, resume func(*servertest.Redis)
}

var (
	masterIsKilled = masterFault{"a master is killed", (*servertest.Redis).Kill, (*servertest.Redis).Start}
	masterIsFrozen = masterFault{"a master is frozen, and goes on later", (*servertest.Redis).Freeze, (*servertest.Redis).Thaw}
	masterIsCutOff = masterFault{
		"a master is cut off from the others, and connected again later", (*servertest.Redis).CutOff, (*servertest.Redis).Reconnect,
	}
)

// onRedis returns a deployment with one MariaDB, which does not fail, and the Redis r. Its faults are that a master of r fails in each way.
func onRedis(tr *trial, r replicatedRedis, ways ...masterFault) deployment {
	t, url := tr.t, mariaDB(tr.t)
	d := deployment{settings: both(databaseURL(url), "FIRSTTAP_REDIS_URL="+r.URL()), current: func() string { return url }}
	for _, way := range ways {
		d.faults = append(d.faults, fault{way.name, func() func() {
			old := r.FailOver(t, way.stop)
			return func() { way.resume(old); r.Await(t) }
		}})
	}
	return d
}

func onSentinel(tr *trial) deployment {
	return onRedis(tr, servertest.StartRedisSentinel(tr.t), masterIsKilled, masterIsFrozen)
}

func onCutSentinel(tr *trial) deployment {
	return onRedis(tr, servertest.StartRedisSentinelOnNetwork(tr.t), masterIsCutOff)
}

func onCluster(tr *trial) deployment {
	return onRedis(tr, servertest.StartReplicatedCluster(tr.t), masterIsKilled, masterIsFrozen)
}

func onCutCluster(tr *trial) deployment {
	return onRedis(tr, servertest.StartReplicatedClusterOnNetwork(tr.t), masterIsCutOff)
}

// onCutGroup has a primary that is cut off from the others and goes on, and a router like onGroup's.
func onCutGroup(tr *trial) deployment {
	g := servertest.StartMySQLGroupOnNetwork(tr.t)
	url, router := behindRouter(tr.t, g)
	return deployment{
		settings: both(databaseURL(router.URL(url)), ownRedis(tr.t)),
		current:  func() string { return addressed(url, g.Primary()) },
		remark:   tr.excusesMade,
		faults: []fault{cutOff(tr, router, func() (*servertest.Database, func()) {
			old := g.FailOver((*servertest.Database).CutOff)
			return g.Primary(), func() { old.Reconnect(); g.Await(old) }
		})},
	}
}

// onCutGalera is onCutGroup for Galera.
func onCutGalera(tr *trial) deployment {
	g, at := servertest.StartGaleraOnNetwork(tr.t), 0
	url := g.Nodes[0].URL(tr.t)
	router := servertest.StartProxy(tr.t, g.Nodes[0].Addr())
	return deployment{
		settings: both(databaseURL(router.URL(url)), ownRedis(tr.t)),
		current:  func() string { return addressed(url, g.Nodes[at]) },
		remark:   tr.excusesMade,
		faults: []fault{cutOff(tr, router, func() (*servertest.Database, func()) {
			old := g.Nodes[at]
			at = (at + 1) % len(g.Nodes)
			old.CutOff()
			g.Await(len(g.Nodes) - 1)
			return g.Nodes[at], func() { old.Reconnect(); g.Await(len(g.Nodes)) }
		})},
	}
}

// cutOff is the fault that the server in use is cut off from the others, and goes on. fail cuts it off, and returns the server that has
// taken over, and what connects the old one again.
func cutOff(tr *trial, router *servertest.Proxy, fail func() (*servertest.Database, func())) fault {
	wins := func() { tr.await(tr.t, "drivers win", 30) }
	return fault{"the server in use is cut off from the others, and connected again later", func() func() {
		next, reconnect := fail()
		tr.excuse(true)
		router.Redirect(next.Addr())
		wins()
		return func() {
			tr.excuse(false)
			wins() // the old server goes on
			reconnect()
		}
	}}
}

// behindRouter returns a URL of the group, and a router to its primary.
func behindRouter(t *testing.T, g *servertest.MySQLGroup) (url string, router *servertest.Proxy) {
	t.Helper()
	first := g.Primary()
	return first.URL(t), servertest.StartProxy(t, first.Addr())
}

// onGroup has a router that leads new connections to the primary, and cuts none.
func onGroup(tr *trial) deployment {
	t := tr.t
	g := servertest.StartMySQLGroup(t)
	url, router := behindRouter(t, g)
	follow := func() { router.Redirect(g.Primary().Addr()) }
	failOver := func(stop, resume func(*servertest.Database)) func() func() {
		return func() func() {
			old := g.FailOver(stop)
			follow()
			return func() { resume(old) }
		}
	}
	secondaries := func() (all []*servertest.Database) {
		primary := g.Primary()
		for _, member := range g.Members {
			if member != primary {
				all = append(all, member)
			}
		}
		return all
	}
	return deployment{
		settings: both(databaseURL(router.URL(url)), ownRedis(t)),
		current:  func() string { return addressed(url, g.Primary()) },
		faults: []fault{
			{"the primary is moved", func() func() { g.Move(secondaries()[0]); follow(); return func() {} }},
			{"the primary is killed", failOver((*servertest.Database).Kill, func(old *servertest.Database) { old.Start(); g.Join(old) })},
			{"the primary is frozen, and goes on later", failOver((*servertest.Database).Freeze, func(old *servertest.Database) { old.Thaw(); g.Await(old) })},
			{"the primary is without the others, until callers hear so", func() func() {
				others := secondaries()
				for _, member := range others {
					member.Freeze()
				}
				before := tr.unknown()
				testkit.Within(t, settled, "a caller is told that the outcome is unknown", func() bool { return tr.unknown() > before })
				for _, member := range others {
					member.Thaw()
				}
				return func() { g.Primary() }
			}},
		},
	}
}

// onZones loses the primary, Redis' master and an instance at the same time, as if they were in one zone.
func onZones(tr *trial) deployment {
	t := tr.t
	g, s := servertest.StartMySQLGroup(t), servertest.StartRedisSentinel(t)
	url, router := behindRouter(t, g)
	return deployment{
		settings: both(databaseURL(router.URL(url)), "FIRSTTAP_REDIS_URL="+s.URL()),
		current:  func() string { return addressed(url, g.Primary()) },
		faults: []fault{{"a zone is lost, and comes back", func() func() {
			var startInstance func()
			var primary *servertest.Database
			master := s.FailOver(t, func(master *servertest.Redis) {
				startInstance = tr.killInstance()
				master.Kill()
				primary = g.FailOver((*servertest.Database).Kill)
				router.Redirect(g.Primary().Addr())
			})
			return func() {
				master.Start()
				s.Await(t)
				primary.Start()
				g.Join(primary)
				startInstance()
			}
		}}},
	}
}

// onGalera has a router that leads all new connections to the same server, and cuts none.
func onGalera(tr *trial) deployment {
	t := tr.t
	g := servertest.StartGalera(t)
	url := g.Nodes[0].URL(t)
	router := servertest.StartProxy(t, g.Nodes[0].Addr())
	at := 0
	failOver := func(stop, resume func(*servertest.Database)) func() func() {
		return func() func() {
			old := g.Nodes[at]
			at = (at + 1) % len(g.Nodes)
			stop(old)
			g.Await(len(g.Nodes) - 1)
			router.Redirect(g.Nodes[at].Addr())
			return func() { resume(old); g.Await(len(g.Nodes)) }
		}
	}
	return deployment{
		settings: both(databaseURL(router.URL(url)), ownRedis(t)),
		current:  func() string { return addressed(url, g.Nodes[at]) },
		faults: []fault{
			{"the server in use is killed", failOver((*servertest.Database).Kill, (*servertest.Database).Start)},
			{"the server in use is frozen, and goes on later", failOver((*servertest.Database).Freeze, (*servertest.Database).Thaw)},
		},
	}
}

// onTwoOfGalera has an instance on each of two servers, which wait for each other before they read. The instances have no common Redis.
func onTwoOfGalera(tr *trial) deployment {
	t := tr.t
	g := servertest.StartGalera(t)
	url := g.Nodes[0].URL(t)
	for _, node := range g.Nodes {
		db := OpenDatabase(t, addressed(url, node))
		testkit.Eventually(t, "the server has the database that another created", func() bool { return db.DB.Ping() == nil })
		db.exec("SET GLOBAL wsrep_sync_wait = 7")
	}
	router := servertest.StartProxy(t, g.Nodes[0].Addr())
	return deployment{
		// Without a common Redis both instances decide, and the servers find the conflicts.
		settings: [2][]string{
			{databaseURL(router.URL(url)), "FIRSTTAP_JOB_LOCK=table"}, {databaseURL(addressed(url, g.Nodes[1])), "FIRSTTAP_JOB_LOCK=table"},
		},
		remark: func() string {
			return fmt.Sprintf("%d transactions failed at the COMMIT or before, because the other server had committed a change of the same row",
				conflicts(t, g.Nodes[1:], url))
		},
		current: func() string { return addressed(url, g.Nodes[1]) },
		once:    true,
		faults: []fault{{"the first instance's server is killed", func() func() {
			g.Nodes[0].Kill()
			g.Await(2)
			router.Redirect(g.Nodes[2].Addr())
			return func() {}
		}}},
	}
}

// onSemiSynchronous has a replica that applies what it has acknowledged before it is promoted.
func onSemiSynchronous(tr *trial) deployment {
	t := tr.t
	r := servertest.StartReplication(t, servertest.MariaDB)
	url := r.URL(t)
	r.Follow()
	r.AwaitReplica()
	router := servertest.StartProxy(t, r.Primary.Addr())
	return deployment{
		settings: both(databaseURL(router.URL(url)), ownRedis(t)),
		current:  func() string { return addressed(url, r.Replica) },
		once:     true,
		faults: []fault{{"the primary is killed, and its replica is promoted", func() func() {
			r.Acknowledged()
			r.Primary.Kill()
			r.ApplyReceived()
			r.Promote()
			router.Redirect(r.Replica.Addr())
			return func() {}
		}}},
	}
}

// onAsynchronous has a replica that lags, and is promoted. What it has not applied is lost.
func onAsynchronous(tr *trial) deployment {
	t := tr.t
	r := servertest.StartReplication(t, servertest.MariaDB)
	url := r.URL(t)
	router := servertest.StartProxy(t, r.Primary.Addr())
	var lag time.Duration
	return deployment{
		settings: both(databaseURL(router.URL(url)), ownRedis(t)),
		current:  func() string { return addressed(url, r.Replica) },
		once:     true,
		loses:    true,
		remark:   func() string { return fmt.Sprintf("the replica was %.2f s behind", lag.Seconds()) },
		faults: []fault{{"the primary is killed, and a replica that lags is promoted", func() func() {
			r.Follow()
			r.Lag()
			since := time.Now()
			tr.await(t, "drivers win", 10)
			lag = time.Since(since)
			r.Primary.Kill()
			r.Promote()
			router.Redirect(r.Replica.Addr())
			return func() {}
		}}},
	}
}

// addressed is the URL with the server's address.
func addressed(raw string, server *servertest.Database) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err) // it is one that servertest has made
	}
	u.Host = server.Addr()
	return u.String()
}

// conflicts counts the transactions that servers of Galera have rolled back for those of another.
func conflicts(t *testing.T, nodes []*servertest.Database, url string) (n int) {
	t.Helper()
	for _, node := range nodes {
		var rolledBack int
		err := OpenDatabase(t, addressed(url, node)).DB.QueryRow(`SELECT SUM(variable_value) FROM information_schema.global_status
			WHERE variable_name IN ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')`).Scan(&rolledBack)
		if err != nil {
			t.Fatal(err)
		}
		n += rolledBack
	}
	return n
}
