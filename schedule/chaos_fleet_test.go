package schedule_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/repository/repositorytest"
	"firsttap/servertest"
	"firsttap/testkit"
)

// chaosTTL is of the locks, and so the term of a run.
const chaosTTL = 3 * time.Second

// way is a strategy for the jobs' locks, with the ledger's database.
type way struct {
	name     string
	lock     string
	servers  int // of Redis
	database string
}

var ways = []way{
	{"redis", "redis", 1, servertest.MariaDB},
	{"quorum of 3", "quorum", 3, servertest.MariaDB},
	{"table, MariaDB", "table", 0, servertest.MariaDB},
	{"table, MySQL", "table", 0, servertest.MySQL},
	{"table, SQLite", "table", 0, servertest.SQLite},
	{"named, MariaDB", "named", 0, servertest.MariaDB},
	{"named, MySQL", "named", 0, servertest.MySQL},
	{"rows, MariaDB", "rows", 0, servertest.MariaDB},
	{"rows, MySQL", "rows", 0, servertest.MySQL},
	// Each instance has locks in its own memory, so that every lock has three holders and the ledger alone decides.
	{"memory", "memory", 0, servertest.MariaDB},
}

// fleet is up to three instances on one ledger, and their reports.
type fleet struct {
	*place
	way way
	role
	*journal
	redis []*servertest.Redis
	seats [3]*seat
	all   []*process // including those that have ended
}

// seat holds one instance at a time.
type seat struct {
	*process
	back    time.Time // when a stopped instance goes on, or a killed one is replaced
	sleeper bool      // goes on as soon as another has taken over its run, so that both work on it
}

// assemble starts the servers that the way needs, and registers the job in an empty ledger. It starts no instance.
func (w way) assemble(t *testing.T, r role) *fleet {
	t.Helper()
	f := &fleet{place: newPlaceAt(t, repositorytest.URL(t, w.database)), way: w, role: r, journal: newJournal()}
	f.Lock, f.Database, f.TTL = w.lock, f.url, chaosTTL
	for range w.servers {
		server := servertest.StartRedis(t)
		f.redis, f.Redis = append(f.redis, server), append(f.Redis, server.URL())
	}
	// No key is unique here, as the test is to see that a slot has one effect.
	f.exec("CREATE TABLE witness (slot BIGINT NOT NULL, owner VARCHAR(100) NOT NULL, pid BIGINT NOT NULL, at BIGINT NOT NULL)")
	f.register(chaosJob)
	return f
}

// onEach runs the test with a fleet of three instances on each of the ways, with all at once. That is more than -parallel allows:
// they wait most of the time.
func onEach(t *testing.T, ways []way, r role, test func(t *testing.T, f *fleet)) {
	var all sync.WaitGroup
	for i, w := range ways {
		all.Go(func() {
			t.Run(w.name, func(t *testing.T) {
				r := r
				r.Seed += uint64(i) << 32
				f := w.assemble(t, r)
				for k := range f.seats {
					f.launch(k, 0)
				}
				for _, s := range f.seats {
					f.awaitUp(s.process)
				}
				test(t, f)
			})
		})
	}
	all.Wait()
}

// launch starts an instance at seat k, whose clock is off by skew.
func (f *fleet) launch(k int, skew time.Duration) *process {
	f.t.Helper()
	r := f.role
	r.Name, r.Seed = fmt.Sprintf("p%d", len(f.all)+1), f.Seed+uint64(len(f.all))
	p := r.start(f.t, f.journal, skew)
	f.all = append(f.all, p)
	f.seats[k] = &seat{process: p}
	return p
}

func (f *fleet) awaitUp(p *process) report {
	f.t.Helper()
	return f.await(f.t, 0, p.Name+" is up", func(r report) bool { return r.What == isUp && r.Who == p.Name })
}

// up returns the instances that run now.
func (f *fleet) up() []*seat {
	var up []*seat
	reports, _ := f.journal.all()
	for _, s := range f.seats {
		works := func(r report) bool { return r.What == isUp && r.Who == s.Name }
		if s.killed.IsZero() && s.stopped.IsZero() && slices.ContainsFunc(reports, works) {
			up = append(up, s)
		}
	}
	return up
}

// disband stops the instances by their normal shutdown.
func (f *fleet) disband() {
	f.t.Helper()
	for _, s := range f.seats {
		if s != nil {
			s.quit()
		}
	}
	for _, p := range f.all {
		p.check()
	}
}

// awaitSlots waits until every slot up to last has ended.
func (f *fleet) awaitSlots(last time.Time) {
	f.t.Helper()
	testkit.Within(f.t, unheard, "all slots up to "+clockTime(last)+" have ended", func() bool {
		runs := f.runs(chaosJob)
		return len(runs) > 0 && !runs[len(runs)-1].Slot.Before(last) &&
			!slices.ContainsFunc(runs, func(r cronjob.Run) bool { return r.EndedAt == nil && !r.Slot.After(last) })
	})
}

// effects returns the owners of the committed effects, by slot.
func (f *fleet) effects() map[int64][]string {
	f.t.Helper()
	rows, err := f.raw.Query("SELECT slot, owner FROM witness")
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	found := map[int64][]string{}
	for rows.Next() {
		var slot int64
		var owner string
		if err := rows.Scan(&slot, &owner); err != nil {
			f.t.Fatal(err)
		}
		found[slot] = append(found[slot], owner)
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return found
}
