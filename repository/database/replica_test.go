//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package database_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// replicated is a primary with a replica. Its Store is an instance that knows no replica.
type replicated struct {
	*Bench
	*servertest.Replication
	kind, replicaURL string
}

func eachReplicated(t *testing.T, kinds []string, test func(*testing.T, *replicated)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, kinds, func(t *testing.T, kind string) {
		if kind == servertest.TiDB {
			t.Skip("TiDB has no replica of MySQL's kind")
		}
		r := servertest.StartReplication(t, kind)
		u, err := url.Parse(r.URL(t))
		Must(t, err)
		db := Migrated(t, u.String())
		Must(t, db.EnsureKey(t.Context(), dispatch.Key{ID: dispatch.FirstKeyID, Name: "first", Role: dispatch.Admin, Hash: strings.Repeat("a", 64)}))
		Must(t, ErrorOf(Direct(t, rootAt(t, u.String())).Exec("CREATE USER reader@'%' IDENTIFIED BY 'another'")))
		Must(t, ErrorOf(Direct(t, rootAt(t, u.String())).Exec("GRANT SELECT ON "+u.Path[1:]+".* TO reader@'%'")))
		u.Host, u.User = r.Replica.Addr(), url.UserPassword("reader", "another")
		r.Follow()
		test(t, &replicated{db, r, kind, u.String()})
	})
}

// lister is another instance, with the replica and the statements that it sends.
type lister struct {
	*Bench
	sent *Watched
	log  bytes.Buffer
}

// lister returns an instance that reads from the replica. It tries a replica that it has left at each read, if eager.
func (r *replicated) lister(t *testing.T, patience time.Duration, eager bool) *lister {
	t.Helper()
	l := &lister{sent: &Watched{}}
	l.Bench = r.By(OpenWith(t, r.Bench.URL, repository.Options{
		ReplicaURL: r.replicaURL, Patience: patience, Observer: l.sent.Watch, Log: slog.New(slog.NewTextHandler(&l.log, nil)),
	}))
	pause, lag := time.Hour, time.Duration(0)
	if eager {
		pause = 0
	}
	if patience == testkit.Patience { // a busy machine delays a read for less
		lag = patience
	}
	l.SetReplica(lag, 2*lag, pause)
	return l
}

// newest is the newest dispatch of the instance's list.
func (l *lister) newest(t *testing.T) dispatch.Dispatch {
	t.Helper()
	items, _, err := l.Dispatches.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 1}})
	Must(t, err)
	if len(items) != 1 {
		t.Fatalf("%d dispatches", len(items))
	}
	return items[0]
}

// mustSee fails the test unless the instance's list begins with the dispatch as it is.
func (l *lister) mustSee(t *testing.T, want dispatch.Dispatch) {
	t.Helper()
	got := l.newest(t)
	testkit.Equal(t, "the newest dispatch's identifier", want.ID, got.ID)
	testkit.Equal(t, "its version", want.Version, got.Version)
}

// The statements of a list.
var (
	byReplica = []string{"serve select", "replica select", "replica select"} // the position, the wait, the list
	byPrimary = []string{"serve select"}
)

// Whatever is committed before a list begins is in it, at any instance: also while the replica lags, by the primary.
func TestListsHaveWhatWasCommitted(t *testing.T) {
	eachReplicated(t, servertest.EveryServer(), func(t *testing.T, r *replicated) {
		patient := r.lister(t, testkit.Patience, false)
		for range 20 {
			d := r.Add(t, nil)
			patient.mustSee(t, d)
			testkit.Equal(t, "the statements", byReplica, patient.sent.Take())
			patient.mustSee(t, r.MustUpdate(t, d.ID, Cancel))
			testkit.Equal(t, "the statements after a change", byReplica, patient.sent.Take())
		}

		short, eager := r.lister(t, testkit.Patience, false), r.lister(t, testkit.Patience, true)
		short.SetReplica(time.Second, 2*testkit.Patience, time.Hour)
		eager.SetReplica(time.Second, 2*testkit.Patience, 0)
		r.Lag()
		d := r.Add(t, nil)
		short.mustSee(t, d)
		if said := short.sent.Take(); said[len(said)-1] != byPrimary[0] {
			t.Errorf("%v", said)
		}
		eager.mustSee(t, d)
		d = r.MustUpdate(t, d.ID, Cancel)
		short.mustSee(t, d)
		testkit.Equal(t, "the statements once the replica is left", byPrimary, short.sent.Take())
		r.Follow()
		testkit.Retry(t, func() error {
			eager.sent.Take()
			eager.mustSee(t, d)
			return differ(byReplica, eager.sent.Take())
		})
		logged := eager.log.String()
		if strings.Count(logged, "the read replica is left") != 1 || strings.Count(logged, "up to date again") != 1 || !strings.Contains(logged, database.ErrLags.Error()) {
			t.Error(logged)
		}
	})
}

// Each instance sees its own and the others' changes, however many read and change at once and whatever the replica does.
func TestListsWhileTheReplicaComesAndGoes(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		instances := []*lister{r.lister(t, 5*time.Second, true), r.lister(t, 5*time.Second, true)}
		lags := []func(){r.Lag, r.Follow, r.Replica.Freeze, r.Replica.Thaw, r.Replica.Kill, r.Replica.Start, r.Follow}
		done := Begin(func() error {
			for range 2 {
				for _, change := range lags {
					change()
				}
			}
			return nil
		})
		for over := false; !over; {
			select {
			case err := <-done:
				Must(t, err)
				over = true
			default:
			}
			testkit.Together(6, func(i int) {
				d := r.Add(t, nil)
				seen, _, err := instances[i%2].Dispatches.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 20}})
				if err != nil || !slices.ContainsFunc(seen, func(s dispatch.Dispatch) bool { return s.ID == d.ID }) {
					t.Errorf("%s is not in the list of an instance: %v", d.ID, err)
				}
			})
		}
		for _, l := range instances {
			testkit.Retry(t, func() error {
				l.newest(t)
				if use, _ := l.Replica(); use.ByReplica == 0 || use.ByPrimary == 0 || !use.InUse {
					return fmt.Errorf("%+v", use)
				}
				return nil
			})
		}
	})
}

// A replica that does not answer costs the reads that have begun a part of the patience, and later ones nothing; one of them tries it from
// time to time.
func TestReplicaThatIsGone(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		for name, gone := range map[string]struct{ leave, come func() }{
			"killed": {r.Replica.Kill, func() { r.Replica.Start(); r.Follow() }},
			"frozen": {r.Replica.Freeze, r.Replica.Thaw},
		} {
			l := r.lister(t, 5*time.Second, false)
			d := r.Add(t, nil)
			l.mustSee(t, d)
			gone.leave()
			testkit.Eventually(t, "the replica is left", func() bool { // by a read that has got a position from the primary in time
				l.mustSee(t, d)
				use, _ := l.Replica()
				return !use.InUse
			})
			l.sent.Take()
			for range 10 {
				d = r.Add(t, nil)
				l.mustSee(t, d)
			}
			testkit.Equal(t, name+": the statements once the replica is left", slices.Repeat(byPrimary, 10), l.sent.Take())
			gone.come()
			l.SetReplica(0, 0, 0)
			l.TryReplicaNow()
			testkit.Retry(t, func() error {
				l.sent.Take()
				l.mustSee(t, d)
				return differ(byReplica, l.sent.Take())
			})
		}
	})
}

// The primary answers if the replica's server refuses the read or is not the primary's replica, and if there are no positions to wait for.
func TestReplicaThatCantAnswer(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		r.mustTellStatesByThePrimarysClock(t)
		d := r.Add(t, nil)
		r.Follow()
		root := Direct(t, rootAt(t, r.replicaURL))
		l := r.lister(t, testkit.Patience, false)
		MustBeError(t, "the events of no dispatch", ErrorOfPage(l.Events(t.Context(), dispatch.NewID(time.Now()), dispatch.Page{Limit: 10})), dispatch.ErrNotFound)
		if use, _ := l.Replica(); !use.InUse || use.ByReplica != 1 || use.ByPrimary != 0 {
			t.Errorf("after a caller's mistake: %+v, %s", use, &l.log)
		}
		Must(t, ErrorOf(root.Exec("RENAME TABLE events TO other"))) // as if a migration had not arrived
		events, _, err := l.Events(t.Context(), d.ID, dispatch.Page{Limit: 10})
		if err != nil || len(events) != 1 {
			t.Errorf("%d events, %v", len(events), err)
		}
		if use, _ := l.Replica(); use.InUse || use.ByPrimary != 1 || !strings.Contains(l.log.String(), "events") {
			t.Errorf("%+v, %s", use, &l.log)
		}
		Must(t, ErrorOf(root.Exec("RENAME TABLE other TO events")))

		Must(t, ErrorOf(root.Exec("UPDATE api_keys SET created_at = created_at + 1"))) // as if it were another database
		l = r.lister(t, testkit.Patience, false)
		l.mustSee(t, d)
		if use, _ := l.Replica(); use.InUse || !strings.Contains(l.log.String(), database.ErrOtherReplica.Error()) {
			t.Errorf("%+v, %s", use, &l.log)
		}

		Must(t, ErrorOf(root.Exec("UPDATE api_keys SET created_at = created_at - 1")))
		l = r.lister(t, testkit.Patience, false)
		l.mustSee(t, d) // its connections are open
		r.Demote()      // the server may not know the newest commits
		mustBeUnavailable(t, "a list of a server that was demoted", ErrorOfPage(l.Dispatches.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 1}})))
		Must(t, ErrorOf(Direct(t, rootAt(t, r.Bench.URL)).Exec("SET GLOBAL read_only = 0")))

		alone := Pooled(t, r.kind)
		l = &lister{sent: &Watched{}}
		l.Bench = alone.By(OpenWith(t, alone.URL, repository.Options{ReplicaURL: alone.URL, Patience: testkit.Patience, Log: slog.New(slog.NewTextHandler(&l.log, nil))}))
		l.mustSee(t, alone.Add(t, nil))
		if use, _ := l.Replica(); use.InUse || !strings.Contains(l.log.String(), database.ErrNoPositions.Error()) {
			t.Errorf("a server without a binary log: %+v, %s", use, &l.log)
		}
	})
}

// mustTellStatesByThePrimarysClock: it says what state a dispatch is in, also where the replica's is a day ahead.
func (r *replicated) mustTellStatesByThePrimarysClock(t *testing.T) {
	t.Helper()
	root := Direct(t, rootAt(t, r.replicaURL))
	Must(t, ErrorOf(root.Exec("SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() + 86400'")))
	l := r.lister(t, testkit.Patience, false)
	open := r.Add(t, nil)
	scheduled := r.Add(t, func(d *dispatch.Dispatch) {
		d.OpensAt = d.OpensAt.Add(time.Hour)
		d.ExpiresAt = d.ExpiresAt.Add(time.Hour)
	})
	for status, want := range map[dispatch.Status]dispatch.ID{dispatch.Pending: open.ID, dispatch.Scheduled: scheduled.ID} {
		items, _, err := l.Dispatches.List(t.Context(), dispatch.Query{Status: status, Page: dispatch.Page{Limit: 10}})
		Must(t, err)
		if len(items) != 1 || items[0].ID != want || items[0].Status != status {
			t.Errorf("%s: %+v", status, items)
		}
	}
	b, err := l.Board.Board(t.Context(), "")
	Must(t, err)
	if b.Counts[dispatch.Pending] != 1 || b.Counts[dispatch.Scheduled] != 1 || b.Counts[dispatch.Expired] != 0 || !Near(b.Now, r.Now(t)) {
		t.Errorf("%+v", b)
	}
	if use, _ := l.Replica(); use.ByReplica != 3 || use.ByPrimary != 0 {
		t.Errorf("%+v", use)
	}
	var ahead int64
	Must(t, l.ReplicaPool().QueryRow("SELECT "+database.MySQLNow).Scan(&ahead))
	if database.Time(ahead).Sub(r.Now(t)) < 23*time.Hour {
		t.Error("the replica's clock is not ahead")
	}
	Must(t, ErrorOf(root.Exec("SET GLOBAL init_connect = ''")))
}

// A secondary of a MySQL group is a replica like any other.
func TestListsFromAGroup(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := servertest.StartMySQLGroup(t)
	primary := g.Primary()
	db := Migrated(t, primary.URL(t))
	for _, m := range g.Members {
		if m == primary {
			continue
		}
		g.Await(m)
		l := &lister{sent: &Watched{}}
		l.Bench = db.By(OpenWith(t, db.URL, repository.Options{
			ReplicaURL: strings.Replace(db.URL, primary.Addr(), m.Addr(), 1), Patience: testkit.Patience, Observer: l.sent.Watch, Log: Quiet,
		}))
		l.SetReplica(testkit.Patience, 2*testkit.Patience, database.ReplicaPause)
		for range 5 {
			l.mustSee(t, db.Add(t, nil))
			testkit.Equal(t, "the statements", byReplica, l.sent.Take())
		}
	}
}

// A replica that failed is not asked for a pause. A read that began before it failed does not bring it back.
func TestAReplicaThatFailedIsTriedAfterAPause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		connector, err := mysql.NewConnector(mysql.NewConfig())
		Must(t, err)
		pool := sql.OpenDB(connector)
		r := database.NewReplica(pool)
		defer pool.Close()
		mustBe := func(asked, left bool) {
			t.Helper()
			if r.Asked() != asked || r.Left() != left {
				t.Errorf("asked %v, left %v; want %v, %v", r.Asked(), r.Left(), asked, left)
			}
		}
		mustBe(true, false)
		r.Note(database.ErrLags)
		mustBe(false, true)
		time.Sleep(database.ReplicaPause - 1)
		r.Note(nil) // a read that began before
		mustBe(false, true)
		time.Sleep(time.Nanosecond)
		mustBe(true, true)
		r.Note(database.ErrLags)
		mustBe(false, true)
		time.Sleep(database.ReplicaPause)
		r.Note(nil)
		mustBe(true, false)
	})
}

func rootAt(t *testing.T, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	Must(t, err)
	u.User = url.User("root")
	return u.String()
}

// differ returns an error unless the two are equal.
func differ(want, got []string) error {
	if !slices.Equal(want, got) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
