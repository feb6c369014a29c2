package repository

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
	"firsttap/migrations"
	"firsttap/repository/primary"
	"firsttap/servertest"
	"firsttap/testkit"
)

// eachOwn runs the test on servers that are the test's own. Its account may write to a server that is read-only, so that
// no error of the server's stands in for what is looked at.
func eachOwn(t *testing.T, test func(*testing.T, *database)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		if kind == servertest.TiDB {
			t.Skip("TiDB has no read_only")
		}
		test(t, migrated(t, servertest.StartDatabase(t, kind).URL(t)))
	})
}

func (db *database) readOnly(t testing.TB, on bool) {
	t.Helper()
	db.exec(t, "SET GLOBAL read_only = ?", on)
}

func mustBeUnavailable(t testing.TB, what string, err error) {
	t.Helper()
	mustBeError(t, what, err, dispatch.ErrUnavailable)
	if !errors.Is(err, primary.ErrReadOnly) {
		t.Errorf("%s: got %v for another reason than %v", what, err, primary.ErrReadOnly)
	}
}

// unasked is a rule that must not be asked.
func unasked(t testing.TB) claimRule {
	return func(*dispatch.Dispatch, dispatch.Candidate, time.Time) ([]dispatch.Event, error) {
		t.Error("the rule decided on data that may be stale")
		return nil, nil
	}
}

func TestReadOnlyServerAnswersNothing(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		d, won, v := db.add(t, nil), db.add(t, nil), db.drivers(t, 1)[0]
		db.mustAccept(t, won.ID, v.ID)
		outbox := db.Outbox(OutboxOptions{Owner: "ins_a", LeaseTerm: time.Minute})
		asks := map[string]func(ctx context.Context) error{
			"a claim":           func(ctx context.Context) error { return errorOf(db.Claim(ctx, d.ID, v.ID, rule(0))) },
			"a repeated claim":  func(ctx context.Context) error { return errorOf(db.Claim(ctx, won.ID, v.ID, unasked(t))) },
			"an unknown one":    func(ctx context.Context) error { return errorOf(db.Claim(ctx, "dsp_x", v.ID, unasked(t))) },
			"an unknown driver": func(ctx context.Context) error { return errorOf(db.Claim(ctx, d.ID, "drv_x", unasked(t))) },
			"a dispatch":        func(ctx context.Context) error { return errorOf(db.Dispatch(ctx, d.ID)) },
			"a driver":          func(ctx context.Context) error { return errorOf(db.Driver(ctx, v.ID)) },
			"a receipt":         func(ctx context.Context) error { return errorOf(db.NewestClaim(ctx, won.ID, v.ID)) },
			"duty":              func(ctx context.Context) error { return errorOfPage(db.SetDuty(ctx, v.ID, false)) },
			"an update": func(ctx context.Context) error {
				_, err := db.Update(ctx, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
					t.Error("the change was asked")
					return nil, nil
				})
				return err
			},
			"the outbox": func(ctx context.Context) error { return errorOf(outbox.LeaseEvents(ctx, 1)) },
			"a look":     func(ctx context.Context) error { return errorOf(db.look(ctx, 0, nil)) },
			"the jobs":   func(ctx context.Context) error { _, _, err := db.JobStates(ctx, []string{report}); return err },
			"a ping":     db.Ping,
		}
		db.known(t, report)
		must(t, errorOf(outbox.LeaseEvents(t.Context(), 0)))
		// A connection of the relay's is asked once a second.
		relay, err := db.work.DB()
		must(t, err)
		relay.SetMaxIdleConns(-1)
		for _, what := range slices.Sorted(maps.Keys(asks)) {
			ask := asks[what]
			// Each by a connection that is there already.
			testkit.Retry(t, func() error {
				_, err := db.Claim(t.Context(), won.ID, v.ID, rule(0))
				return errors.Join(err, db.Ping(t.Context()), errorOf(db.look(t.Context(), 0, nil)))
			})
			db.readOnly(t, true)
			mustBeUnavailable(t, what, ask(t.Context()))
			mustBeUnavailable(t, what+" again", ask(t.Context()))
			db.readOnly(t, false)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
		// The server takes writes again.
		asks["a claim"] = func(ctx context.Context) error { return errorOf(db.accept(ctx, won.ID, v.ID)) }
		for _, what := range []string{"a claim", "a dispatch", "a driver", "the outbox", "a look", "the jobs", "a ping"} {
			testkit.Retry(t, func() error { return asks[what](t.Context()) })
			must(t, asks[what](t.Context()))
		}
	})
}

// claiming begins a claim, and delivers its error.
func claiming(t *testing.T, s *Store, id dispatch.ID, driver dispatch.DriverID) <-chan error {
	return begin(func() error { return errorOf(s.Claim(t.Context(), id, driver, rule(0))) })
}

// The server becomes read-only between what the rule decides on and the write.
func TestAServerBecomesReadOnlyBeforeTheUpdate(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold := proxy.Hold(callOfClaim)
		ended := claiming(t, s, d.ID, v.ID)
		testkit.Await(t, "the call", hold.Reached())
		db.readOnly(t, true)
		hold.Release()
		mustBeUnavailable(t, "the claim", <-ended)
		db.readOnly(t, false)
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
	})
}

// A claim that only a demoted server has may be missing on the new primary: its result is unknown.
func TestAServerBecomesReadOnlyAfterTheCommit(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		cut := proxy.CutReply(callOfClaim)
		asks := proxy.Hold("INSERT INTO events")
		ended := claiming(t, s, d.ID, v.ID)
		testkit.Await(t, "the cut", cut.Done())
		testkit.Await(t, "the question", asks.Reached())
		db.readOnly(t, true)
		asks.Release()
		mustBeError(t, "the claim", <-ended, dispatch.ErrUnknown)
		db.readOnly(t, false)
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// Every connection for claims leads to the server that was demoted, and stays open: the next claims are decided by the
// other, at once.
func TestClaimsGoToTheNewServer(t *testing.T) {
	t.Parallel()
	replication := servertest.StartReplication(t, servertest.MariaDB)
	u, err := url.Parse(replication.URL(t))
	must(t, err)
	proxy := servertest.StartProxy(t, u.Host)
	db := migrated(t, proxy.URL(u.String()))
	drivers := db.drivers(t, 2*decideConns)
	first := db.add(t, nil)
	testkit.Together(len(drivers), func(i int) { _, _ = db.accept(t.Context(), first.ID, drivers[i].ID) })

	replication.Demote()
	replication.Follow()
	replication.Promote()
	proxy.Redirect(replication.Replica.Addr())
	u.Host = replication.Replica.Addr()
	moved := open(t, u.String())
	d := (&database{Store: moved}).add(t, nil)
	won := make(chan dispatch.DriverID, len(drivers))
	testkit.Together(len(drivers), func(i int) {
		switch _, err := db.accept(t.Context(), d.ID, drivers[i].ID); {
		case err == nil:
			won <- drivers[i].ID
		case !errors.Is(err, dispatch.ErrAlreadyTaken) && !errors.Is(err, dispatch.ErrDriverBusy):
			t.Errorf("the first claim after the switch: %v", err)
		}
	})
	if len(won) > 1 {
		t.Errorf("%d winners", len(won))
	}
	claims, err := db.decide.DB()
	must(t, err)
	if n := claims.Stats().OpenConnections; n > decideConns {
		t.Errorf("%d connections for claims", n)
	}
}

// A server stands still while another takes over, and goes on without knowing it. Nothing is answered from it, though all connections to
// it were kept, and it takes writes.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	replication := servertest.StartReplication(t, servertest.MariaDB)
	u, err := url.Parse(replication.URL(t))
	must(t, err)
	old := migrated(t, u.String())
	won, winner := old.add(t, nil), old.drivers(t, 1)[0]
	old.mustAccept(t, won.ID, winner.ID)
	replication.Follow()

	proxy := servertest.StartProxy(t, u.Host)
	s := openWith(t, proxy.URL(u.String()), Options{Log: quiet, Patience: time.Second})
	replays := func(ctx context.Context) error {
		_, err := s.Claim(ctx, won.ID, winner.ID, rule(1))
		return err
	}
	reads := func(ctx context.Context) error {
		d, err := s.Dispatch(ctx, won.ID)
		if err == nil && d.Round != 1 {
			err = dispatch.ErrOfferStale
		}
		return err
	}
	// So many ask at the same time that a pool has all its connections.
	each := func(ask func(context.Context) error) (errs []error) {
		errs = make([]error, 2*serveConns)
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
	moved := &database{Store: open(t, u.String())}
	moved.mustUpdate(t, won.ID, withdraw)
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
	db := migrated(t, rawURL)
	pool, _, err := OpenPool(rawURL, 1)
	must(t, err)
	t.Cleanup(func() { pool.Close() })
	var c *sql.Conn
	testkit.Retry(t, func() (err error) { // the pool gives a server a second to answer
		c, err = pool.Conn(t.Context())
		return err
	})
	defer c.Close()
	replication.Demote()
	mustBeError(t, "a write", errorOf(c.ExecContext(t.Context(), "UPDATE drivers SET version = version")), driver.ErrBadConn)
	_ = c.Close() // so that the pool is free, whatever became of it
	testkit.Retry(t, func() error {
		if err := errorOf(pool.Exec("UPDATE drivers SET version = version")); !errors.Is(err, primary.ErrReadOnly) {
			return errors.Join(errors.New("a write by a new connection is not refused, or for another reason"), err)
		}
		return nil
	})
	err = db.Migrate(func(m *migrations.Migrator) error { return errorOf(m.Down(t.Context())) })
	if err == nil || errors.Is(err, driver.ErrBadConn) {
		t.Errorf("whoever migrates a read-only server reads %v", err)
	}
}

// started runs a probe until the test ends.
func started(t *testing.T, s *Store) *Probe {
	t.Helper()
	p := s.Probe(t.Context())
	testkit.Run(t, p.Run)
	return p
}

func (p *Probe) becomes(t *testing.T, up bool) {
	t.Helper()
	testkit.Retry(t, func() error {
		if p.Up() != up {
			return errors.New("the probe does not see what became of the database")
		}
		return nil
	})
}

// mustProbeUp fails the test unless a probe that begins meanwhile finds the database up. A single one gives it a second to answer.
func (db *database) mustProbeUp(t *testing.T, meanwhile string) {
	t.Helper()
	testkit.Eventually(t, "up, while "+meanwhile, func() bool { return db.Probe(t.Context()).Up() })
}

func TestProbe(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		p := started(t, db.Store)
		p.becomes(t, true)
		must(t, db.Close())
		p.becomes(t, false)
	})
}

func TestProbeOfAServerThatBecomesReadOnly(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		p := started(t, db.Store)
		db.readOnly(t, true)
		p.becomes(t, false)
		if late := db.Probe(t.Context()); late.Up() {
			t.Error("up, on a read-only server")
		}
		db.readOnly(t, false)
		p.becomes(t, true)
	})
}

// All connections for reading are busy: the database takes writes all the same.
func TestProbeWhileAllConnectionsAreBusy(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for name, pool := range db.Pools() {
			if name == "watch" {
				continue // it is the probe's
			}
			for range pool.Stats().MaxOpenConnections {
				c, err := pool.Conn(t.Context())
				must(t, err)
				defer c.Close()
			}
		}
		db.mustProbeUp(t, "others are busy")
	})
}

func TestPingOfSQLite(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	must(t, db.Ping(t.Context()))
	path := strings.TrimPrefix(db.url, "sqlite://")
	fixed, err := sql.Open("sqlite", sqliteDSN(path, 0)+"&mode=ro")
	must(t, err)
	defer fixed.Close()
	if err := takesWrites(t.Context(), fixed); err == nil {
		t.Error("a file that can't be written to is said to take writes")
	}
}

// A probe that has come to a halt knows nothing.
func TestProbeForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ping atomic.Pointer[func() error]
		become := func(answer func() error) { ping.Store(&answer) }
		halted := make(chan struct{})
		become(func() error { return nil })
		s := &Store{looks: newLooks(), log: quiet, dialect: dialect{hasTables: func(context.Context) error { return nil }, ping: func(context.Context) error { return (*ping.Load())() }}}
		p := started(t, s)
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
		at(probeInterval, false)
		become(func() error { return nil })
		at(probeInterval, true)
		become(func() error { <-halted; return nil }) // for longer than it is given
		at(maxProbeAge-probeInterval, true)
		at(2*probeInterval, false)
		close(halted)
		at(2*probeInterval, true)
	})
}
