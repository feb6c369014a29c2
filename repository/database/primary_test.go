//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package database_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/primary"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

func readOnly(db *Bench, t testing.TB, on bool) {
	t.Helper()
	db.Exec(t, "SET GLOBAL read_only = ?", on)
}

func mustBeUnavailable(t testing.TB, what string, err error) {
	t.Helper()
	MustBeError(t, what, err, dispatch.ErrUnavailable)
	if !errors.Is(err, primary.ErrReadOnly) {
		t.Errorf("%s: got %v for another reason than %v", what, err, primary.ErrReadOnly)
	}
}

// unasked is a rule that must not be asked.
func unasked(t testing.TB) dispatches.Rule {
	return func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error) {
		t.Error("the rule decided on data that may be stale")
		return nil, nil
	}
}

func TestReadOnlyServerAnswersNothing(t *testing.T) {
	EachOwn(t, func(t *testing.T, db *Bench) {
		d, won, v := db.Add(t, nil), db.Add(t, nil), db.Fleet(t, 1)[0]
		db.MustAccept(t, won.ID, v.ID)
		outbox := db.Store.Outbox(pushes.Options{Owner: "ins_a", LeaseTerm: time.Minute})
		asks := map[string]func(ctx context.Context) error{
			"a claim": func(ctx context.Context) error {
				return ErrorOf(db.Claim(ctx, d.ID, v.ID, Rule(0)))
			},
			"a repeated claim": func(ctx context.Context) error {
				return ErrorOf(db.Claim(ctx, won.ID, v.ID, unasked(t)))
			},
			"an unknown one": func(ctx context.Context) error {
				return ErrorOf(db.Claim(ctx, "dsp_x", v.ID, unasked(t)))
			},
			"an unknown driver": func(ctx context.Context) error {
				return ErrorOf(db.Claim(ctx, d.ID, "drv_x", unasked(t)))
			},
			"a dispatch": func(ctx context.Context) error { return ErrorOf(db.Dispatch(ctx, d.ID)) },
			"a driver":   func(ctx context.Context) error { return ErrorOf(db.Driver(ctx, v.ID)) },
			"a receipt":  func(ctx context.Context) error { return ErrorOf(db.ClaimOf(ctx, won.ID, v.ID, 0)) },
			"duty":       func(ctx context.Context) error { return ErrorOfPage(db.SetDuty(ctx, v.ID, false)) },
			"an update": func(ctx context.Context) error {
				_, err := db.Update(ctx, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
					t.Error("the change was asked")
					return nil, nil
				})
				return err
			},
			"the outbox": func(ctx context.Context) error { return ErrorOf(outbox.LeaseEvents(ctx, 1)) },
			"a look":     func(ctx context.Context) error { return ErrorOf(db.Poll.Waiting(ctx, 0, nil)) },
			"the jobs": func(ctx context.Context) error {
				_, _, err := db.JobStates(ctx, []string{Report})
				return err
			},
			"a ping": db.Ping,
		}
		db.Known(t, Report)
		Must(t, ErrorOf(outbox.LeaseEvents(t.Context(), 0)))
		// A connection of the relay's is asked once a second.
		relay, err := db.Work.SQL()
		Must(t, err)
		relay.SetMaxIdleConns(-1)
		for _, what := range slices.Sorted(maps.Keys(asks)) {
			ask := asks[what]
			// Each by a connection that is there already.
			testkit.Retry(t, func() error {
				_, err := db.Claim(t.Context(), won.ID, v.ID, Rule(0))
				return errors.Join(err, db.Ping(t.Context()), ErrorOf(db.Poll.Waiting(t.Context(), 0, nil)))
			})
			readOnly(db, t, true)
			mustBeUnavailable(t, what, ask(t.Context()))
			mustBeUnavailable(t, what+" again", ask(t.Context()))
			readOnly(db, t, false)
		}
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
		// The server takes writes again.
		asks["a claim"] = func(ctx context.Context) error { return ErrorOf(db.Accept(ctx, won.ID, v.ID)) }
		for _, what := range []string{"a claim", "a dispatch", "a driver", "the outbox", "a look", "the jobs", "a ping"} {
			testkit.Retry(t, func() error { return asks[what](t.Context()) })
			Must(t, asks[what](t.Context()))
		}
	})
}

// The server becomes read-only between what the rule decides on and the write.
func TestAServerBecomesReadOnlyBeforeTheUpdate(t *testing.T) {
	EachOwn(t, func(t *testing.T, db *Bench) {
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		hold := proxy.Hold(CallOfClaim)
		ended := Claiming(t, s, d.ID, v.ID)
		testkit.Await(t, "the call", hold.Reached())
		readOnly(db, t, true)
		hold.Release()
		mustBeUnavailable(t, "the claim", <-ended)
		readOnly(db, t, false)
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
	})
}

// A claim that only a demoted server has may be missing on the new primary: its result is unknown.
func TestAServerBecomesReadOnlyAfterTheCommit(t *testing.T) {
	EachOwn(t, func(t *testing.T, db *Bench) {
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		cut := proxy.CutReply(CallOfClaim)
		asks := proxy.Hold("INSERT INTO events")
		ended := Claiming(t, s, d.ID, v.ID)
		testkit.Await(t, "the cut", cut.Done())
		testkit.Await(t, "the question", asks.Reached())
		readOnly(db, t, true)
		asks.Release()
		MustBeError(t, "the claim", <-ended, dispatch.ErrUnknown)
		readOnly(db, t, false)
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// Every connection for claims leads to the server that was demoted, and stays open: the next claims are decided by the
// other, at once.
func TestClaimsGoToTheNewServer(t *testing.T) {
	t.Parallel()
	replication := servertest.StartReplication(t, servertest.MariaDB)
	u, err := url.Parse(replication.URL(t))
	Must(t, err)
	proxy := servertest.StartProxy(t, u.Host)
	db := Migrated(t, proxy.URL(u.String()))
	drivers := db.Fleet(t, 2*database.DecideConns)
	first := db.Add(t, nil)
	testkit.Together(len(drivers), func(i int) { _, _ = db.Accept(t.Context(), first.ID, drivers[i].ID) })

	replication.Demote()
	replication.Follow()
	replication.Promote()
	proxy.Redirect(replication.Replica.Addr())
	u.Host = replication.Replica.Addr()
	moved := OpenPatient(t, u.String())
	d := Onto(moved, "", nil).Add(t, nil)
	won := make(chan dispatch.DriverID, len(drivers))
	testkit.Together(len(drivers), func(i int) {
		switch _, err := db.Accept(t.Context(), d.ID, drivers[i].ID); {
		case err == nil:
			won <- drivers[i].ID
		case !errors.Is(err, dispatch.ErrAlreadyTaken) && !errors.Is(err, dispatch.ErrDriverBusy):
			t.Errorf("the first claim after the switch: %v", err)
		}
	})
	if len(won) > 1 {
		t.Errorf("%d winners", len(won))
	}
	claims, err := db.Decide.SQL()
	Must(t, err)
	if n := claims.Stats().OpenConnections; n > database.DecideConns {
		t.Errorf("%d connections for claims", n)
	}
}

// A server stands still while another takes over, and goes on without knowing it. Nothing is answered from it, though all connections to
// it were kept, and it takes writes.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	replication := servertest.StartReplication(t, servertest.MariaDB)
	u, err := url.Parse(replication.URL(t))
	Must(t, err)
	old := Migrated(t, u.String())
	won, winner := old.Add(t, nil), old.Fleet(t, 1)[0]
	old.MustAccept(t, won.ID, winner.ID)
	replication.Follow()

	proxy := servertest.StartProxy(t, u.Host)
	s := OpenWith(t, proxy.URL(u.String()), repository.Options{Log: Quiet, Patience: time.Second})
	replays := func(ctx context.Context) error {
		_, err := s.Dispatches.Claim(ctx, won.ID, winner.ID, Rule(1))
		return err
	}
	reads := func(ctx context.Context) error {
		d, err := s.Dispatches.Dispatch(ctx, won.ID)
		if err == nil && d.Round != 1 {
			err = dispatch.ErrOfferStale
		}
		return err
	}
	// So many ask at the same time that a pool has all its connections.
	each := func(ask func(context.Context) error) (errs []error) {
		errs = make([]error, 2*database.ServeConns)
		testkit.Together(len(errs), func(i int) { errs[i] = ask(t.Context()) })
		return errs
	}
	for _, err := range slices.Concat(each(replays), each(reads)) {
		if err != nil && !errors.Is(err, dispatch.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	replication.Primary.Freeze()
	if err := s.Ping(t.Context()); err == nil { // as the probe does each second
		t.Fatal("a frozen server has answered")
	}
	replication.Promote()
	proxy.Redirect(replication.Replica.Addr())
	u.Host = replication.Replica.Addr()
	moved := Onto(OpenPatient(t, u.String()), "", nil)
	moved.MustUpdate(t, won.ID, Withdraw)
	replication.Primary.Thaw()
	for _, err := range slices.Concat(each(replays), each(reads)) {
		if err == nil {
			t.Fatal("an answer from the old server")
		}
	}
	testkit.Retry(t, func() error {
		if err := reads(t.Context()); !errors.Is(err, dispatch.ErrOfferStale) {
			return fmt.Errorf("the new server is not used: %w", err)
		}
		return nil
	})
}

// An ordinary account's writes are refused by a read-only server, and the connection is given up: also by what has pools of
// its own.
func TestReadOnlyErrorsEndTheConnection(t *testing.T) {
	t.Parallel()
	replication := servertest.StartReplication(t, servertest.MariaDB)
	rawURL := replication.URL(t)
	db := Migrated(t, rawURL)
	pool, _, err := database.OpenPool(rawURL, 1)
	Must(t, err)
	t.Cleanup(func() { pool.Close() })
	var c *sql.Conn
	testkit.Retry(t, func() (err error) { // the pool gives a server a second to answer
		c, err = pool.Conn(t.Context())
		return err
	})
	defer c.Close()
	replication.Demote()
	MustBeError(t, "a write", ErrorOf(c.ExecContext(t.Context(), "UPDATE drivers SET version = version")), driver.ErrBadConn)
	_ = c.Close() // so that the pool is free, whatever became of it
	testkit.Retry(t, func() error {
		if err := ErrorOf(pool.Exec("UPDATE drivers SET version = version")); !errors.Is(err, primary.ErrReadOnly) {
			return errors.Join(errors.New("a write by a new connection is not refused, or for another reason"), err)
		}
		return nil
	})
	err = db.Migrate(func(m *migrations.Migrator) error { return ErrorOf(m.Down(t.Context())) })
	if err == nil || errors.Is(err, driver.ErrBadConn) {
		t.Errorf("whoever migrates a read-only server reads %v", err)
	}
}

func becomes(p *database.Probe, t *testing.T, up bool) {
	t.Helper()
	testkit.Retry(t, func() error {
		if p.Up() != up {
			return errors.New("the probe does not see what became of the database")
		}
		return nil
	})
}

func TestProbe(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		p := Started(t, db.Store)
		becomes(p, t, true)
		Must(t, db.Close())
		becomes(p, t, false)
	})
}

func TestProbeOfAServerThatBecomesReadOnly(t *testing.T) {
	EachOwn(t, func(t *testing.T, db *Bench) {
		p := Started(t, db.Store)
		readOnly(db, t, true)
		becomes(p, t, false)
		if late := db.Probe(t.Context()); late.Up() {
			t.Error("up, on a read-only server")
		}
		readOnly(db, t, false)
		becomes(p, t, true)
	})
}

// All connections for reading are busy: the database takes writes all the same.
func TestProbeWhileAllConnectionsAreBusy(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		for name, pool := range db.Pools() {
			if name == "watch" {
				continue // it is the probe's
			}
			for range pool.Stats().MaxOpenConnections {
				c, err := pool.Conn(t.Context())
				Must(t, err)
				defer c.Close()
			}
		}
		db.MustProbeUp(t, "others are busy")
	})
}

func TestPingOfSQLite(t *testing.T) {
	db := Pooled(t, servertest.SQLite)
	Must(t, db.Ping(t.Context()))
	path := strings.TrimPrefix(db.URL, "sqlite://")
	fixed, err := sql.Open("sqlite", database.SQLiteDSN(path, 0)+"&mode=ro")
	Must(t, err)
	defer fixed.Close()
	if err := database.TakesWrites(t.Context(), fixed); err == nil {
		t.Error("a file that can't be written to is said to take writes")
	}
}

// A probe that has come to a halt knows nothing.
func TestProbeForgets(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var ping atomic.Pointer[func() error]
		become := func(answer func() error) { ping.Store(&answer) }
		halted := make(chan struct{})
		become(func() error { return nil })
		p := database.ProbeOf(t.Context(), Quiet, func(context.Context) error { return (*ping.Load())() })
		testkit.Run(t, p.Run)
		at := func(d time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if p.Up() != want {
				t.Errorf("up is %v", !want)
			}
		}
		at(0, true) // from the start
		at(time.Minute, true)
		become(func() error { return primary.ErrReadOnly })
		at(database.ProbeInterval, false)
		become(func() error { return nil })
		at(database.ProbeInterval/2, true)            // an outage is checked twice as often
		become(func() error { <-halted; return nil }) // for longer than it is given
		at(database.MaxProbeAge-1, true)
		at(1, false)
		close(halted)
		at(2*database.ProbeInterval, true)
	})
}
