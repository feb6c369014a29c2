package repository

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// counting is the database by way of a Store that counts its statements.
func (db *database) counting(t testing.TB) (*database, *watched) {
	t.Helper()
	w := &watched{}
	return db.by(openWith(t, db.url, Options{Log: quiet, Patience: testkit.Patience, Observer: w.watch})), w
}

// A claim is one statement after one that reads, or alone where the process knows dispatch and driver. The process learns the
// dispatch by creating it, the driver by reading for an earlier claim.
func TestStatementsOfAClaim(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		db, w := db.counting(t)
		v := db.drivers(t, 1)[0]
		for day, want := range [][]string{{"decide select", "decide call"}, {"decide call"}, {"decide call"}} {
			d := db.add(t, later(day))
			w.take()
			got := db.mustAccept(t, d.ID, v.ID)
			testkit.Equal(t, "the statements", want, w.take())
			db.mustStore(t, got)
		}
	})
}

// A process that has not created a dispatch claims it without reading it, if it knows the driver and the driver has looked at the offer.
func TestClaimAfterALook(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		other := db.by(open(t, db.url))
		db, w := db.counting(t)
		v := db.drivers(t, 1)[0]
		db.mustAccept(t, db.add(t, nil).ID, v.ID) // now the process knows the driver
		looks := []func(dispatch.ID) error{
			func(id dispatch.ID) error { return errorOf(db.OfferTo(t.Context(), id, v.ID)) },
			func(dispatch.ID) error {
				return errorOfPage(db.OpenDispatchesFor(t.Context(), v, dispatch.Page{Limit: 10}))
			},
		}
		for day, look := range looks {
			d := other.add(t, later(day+1))
			must(t, look(d.ID))
			w.take()
			got := db.mustAccept(t, d.ID, v.ID)
			testkit.Equal(t, "the statements", []string{"decide call"}, w.take())
			db.mustStore(t, got)
		}
	})
}

// What a process knows may be old: it decides on what the database says.
func TestClaimOnOldKnowledge(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		other := db.by(open(t, db.url))
		drivers := db.drivers(t, 3)
		for day, v := range drivers {
			db.mustAccept(t, db.add(t, later(10+day)).ID, v.ID) // now it knows the driver
		}
		tests := []struct {
			name   string
			change func(d dispatch.Dispatch)
			want   error
		}{
			{"canceled", func(d dispatch.Dispatch) { other.mustUpdate(t, d.ID, cancel) }, dispatch.ErrCanceled},
			{"taken", func(d dispatch.Dispatch) { other.mustAccept(t, d.ID, drivers[1].ID) }, dispatch.ErrAlreadyTaken},
			{"off duty", func(dispatch.Dispatch) { must(t, errorOfPage(other.SetDuty(t.Context(), drivers[0].ID, false))) }, dispatch.ErrNotEligible},
			{"on duty", func(dispatch.Dispatch) { must(t, errorOfPage(other.SetDuty(t.Context(), drivers[0].ID, true))) }, nil},
			{"busy", func(d dispatch.Dispatch) {
				same := other.add(t, func(o *dispatch.Dispatch) { o.WorkStartsAt, o.WorkEndsAt = d.WorkStartsAt, d.WorkEndsAt })
				other.mustAccept(t, same.ID, drivers[0].ID)
			}, dispatch.ErrDriverBusy},
			{"of another history", func(d dispatch.Dispatch) {
				db.exec(t, "UPDATE dispatches SET note = 'other terms', updated_at = updated_at + 7 WHERE id = ?", d.ID)
			}, nil},
			{"off duty in another history", func(dispatch.Dispatch) {
				db.exec(t, "UPDATE drivers SET on_duty = FALSE, updated_at = updated_at + 7 WHERE id = ?", drivers[0].ID)
			}, dispatch.ErrNotEligible},
			{"back on duty", func(dispatch.Dispatch) { must(t, errorOfPage(other.SetDuty(t.Context(), drivers[0].ID, true))) }, nil},
			{"extended", func(d dispatch.Dispatch) { other.mustUpdate(t, d.ID, extended(1)) }, nil},
		}
		for day, tt := range tests {
			d := db.add(t, later(day))
			tt.change(d)
			got, err := db.accept(t.Context(), d.ID, drivers[0].ID)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if err == nil {
				db.mustStore(t, got)
			}
		}
	})
}

// A busy process uses a slow reading of the database's clock until it has a quick one.
func TestSlowReadingOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no quick reading gets slow
		k := newLastKnown()
		for _, reading := range []struct {
			what              string
			ahead, took, want time.Duration
		}{
			{"the first, a slow one, is used", time.Hour, time.Minute, time.Hour},
			{"another slow one replaces it", -2 * time.Hour, time.Minute, -2 * time.Hour},
			{"a quick one replaces it", 3 * time.Hour, maxClockDelay, 3 * time.Hour},
			{"a slow one does not replace a quick one", time.Hour, time.Minute, 3 * time.Hour},
		} {
			k.learnTime(time.Now().Add(reading.ahead), time.Now().Add(-reading.took))
			if ahead := k.clock.ahead; !k.clock.read || ahead != reading.want {
				t.Errorf("%s: %s", reading.what, ahead)
			}
		}
	})
}

// A process that is wrong about the database's time is neither early nor late, and a driver does not escape a suspension.
func TestClaimAtAWrongTime(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		db, w := db.counting(t)
		v := db.drivers(t, 1)[0].ID
		db.mustAccept(t, db.add(t, nil).ID, v)
		until := time.Now().Add(10 * time.Minute)
		since := func(end time.Duration) func(*dispatch.Dispatch) { // made three hours ago
			return func(d *dispatch.Dispatch) {
				d.CreatedAt, d.UpdatedAt = d.CreatedAt.Add(-3*time.Hour), d.UpdatedAt.Add(-3*time.Hour)
				d.OpensAt, d.ExpiresAt = d.CreatedAt, d.CreatedAt.Add(end)
			}
		}
		for i, tt := range []struct {
			name  string
			ahead time.Duration
			edit  func(*dispatch.Dispatch)
			want  error
		}{
			{"not open yet", 90 * time.Minute, soon, dispatch.ErrNotOpenYet},
			{"expired", -2 * time.Hour, since(2 * time.Hour), dispatch.ErrExpired},
			{"open", -2 * time.Hour, since(4 * time.Hour), nil},
			{"open, in the future", time.Minute, nil, nil},
			{"suspended", time.Hour, func(d *dispatch.Dispatch) {
				d.ExpiresAt = d.CreatedAt.Add(3 * time.Hour)
				db.exec(t, "UPDATE drivers SET suspended_until = ?, version = version + 1", until.UnixMicro())
				db.lastKnown.drivers.Purge()
				db.lastKnown.clock.ahead = 0
				_, _ = db.accept(t.Context(), db.add(t, later(20)).ID, v) // now it knows the suspension
			}, dispatch.ErrNotEligible},
		} {
			d := db.add(t, func(d *dispatch.Dispatch) {
				later(i + 1)(d)
				if tt.edit != nil {
					tt.edit(d)
				}
			})
			db.lastKnown.clock.ahead, db.lastKnown.clock.quick = tt.ahead, true
			w.take()
			got, err := db.accept(t.Context(), d.ID, v)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if statements := w.take(); statements[0] != "decide call" {
				t.Errorf("%s: it was not decided at the wrong time first: %q", tt.name, statements)
			}
			if err == nil {
				db.mustStore(t, got)
			}
			if err == nil && tt.ahead > 0 {
				db.mustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
					return d.Unassign(d.Version, dispatch.System, "", now)
				})
				db.mustHaveEvents(t, d.ID, dispatch.EventAccepted, dispatch.EventUnassigned, dispatch.EventReopened)
			}
		}
	})
}

// mustHaveEvents fails the test unless these are the dispatch's last events, in this order.
func (db *database) mustHaveEvents(t *testing.T, id dispatch.ID, want ...dispatch.EventType) {
	t.Helper()
	events, _, err := db.Events(t.Context(), id, dispatch.Page{Limit: 200})
	must(t, err)
	var got []dispatch.EventType
	for _, e := range events[max(len(events)-len(want), 0):] {
		got = append(got, e.Type)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: the last events are %v, want %v", id, got, want)
	}
}

// A dump may be restored without its procedures.
func TestTheProcedureIsMissing(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		v := db.drivers(t, 1)[0]
		for day := range 2 {
			db.exec(t, "DROP PROCEDURE "+db.procedure.name)
			db.mustStore(t, db.mustAccept(t, db.add(t, later(day)).ID, v.ID))
			db.mustCount(t, 1, "information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = ?", db.procedure.name)
		}
		if !db.procedure.usable() {
			t.Error("the procedure is no longer used")
		}
	})
}

// restricted is the database by way of a user who has the privileges only, and what the Store logs.
func (db *database) restricted(t testing.TB, privileges string) (*database, *testkit.LogBuffer) {
	t.Helper()
	u, err := url.Parse(db.url)
	must(t, err)
	name := "u" + strings.TrimPrefix(u.Path, "/")
	t.Cleanup(func() {
		if _, err := db.raw.Exec("DROP USER " + name); err != nil {
			t.Error(err)
		}
	})
	db.exec(t, "CREATE USER "+name+" IDENTIFIED BY 'secret'")
	db.exec(t, "GRANT "+privileges+" ON "+strings.TrimPrefix(u.Path, "/")+".* TO "+name)
	u.User = url.UserPassword(name, "secret")
	log := &testkit.LogBuffer{}
	s := openWith(t, u.String(), Options{Log: slog.New(slog.NewTextHandler(log, nil)), Patience: testkit.Patience})
	return db.by(s), log
}

// A user who may not create procedures claims all the same, in transactions, and an operator reads why.
func TestAUserWithoutPrivilegesForProcedures(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		const rows = "SELECT, INSERT, UPDATE, DELETE"
		drivers := db.drivers(t, 4)
		race := func(db *database, day int) {
			d := db.add(t, later(day))
			db.PrepareClaims(t.Context())
			db.mustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				return db.accept(t.Context(), d.ID, drivers[i].ID)
			}, func(int) error { return dispatch.ErrAlreadyTaken })
		}
		mayExecute, log := db.restricted(t, rows+", EXECUTE")
		if race(mayExecute, 0); !mayExecute.procedure.usable() || log.String() != "" {
			t.Errorf("another user's procedure is not used: %s", log)
		}
		db.exec(t, "DROP PROCEDURE "+db.procedure.name)
		for day := range 2 {
			race(mayExecute, 1+day)
		}
		same := db.add(t, later(1))
		for _, v := range drivers {
			if _, err := mayExecute.accept(t.Context(), same.ID, v.ID); err == nil {
				mustBeError(t, "the winner's other work", errorOf(mayExecute.accept(t.Context(), db.add(t, later(1)).ID, v.ID)), dispatch.ErrDriverBusy)
				break
			}
		}
		if said := log.String(); mayExecute.procedure.usable() || strings.Count(said, "CREATE ROUTINE") != 1 {
			t.Errorf("it logs %q", said)
		}
	})
}

// A database user without the privilege INSERT can't claim. After the user has got the privilege, a claim uses the procedure.
func TestAUserWithoutPrivilegesForTables(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		app, _ := db.restricted(t, "SELECT, UPDATE, EXECUTE")
		_, err := app.accept(t.Context(), d.ID, v.ID)
		mustBeError(t, "a claim that may not be inserted", err, dispatch.ErrUnavailable)
		if errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("nothing was written: %v", err)
		}
		db.mustStore(t, d)
		u, err := url.Parse(db.url)
		must(t, err)
		name := strings.TrimPrefix(u.Path, "/")
		db.exec(t, "GRANT INSERT ON "+name+".* TO u"+name)
		app.mustAccept(t, d.ID, v.ID)
		if !app.procedure.usable() {
			t.Error("the procedure is not used any more")
		}
	})
}

// The server can't load the procedure, and each claim tries again: a warning is logged every 10 s at most.
func TestProcedureThatIsNotLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.LogBuffer{}
		p := newClaimProcedure(nil, slog.New(slog.NewTextHandler(log, nil)))
		for range 25 {
			p.refuse(&driver.MySQLError{Number: 1548, Message: "Cannot load from mysql.proc. The table is probably corrupted"})
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 3 || !p.usable() {
			t.Errorf("%d warnings, usable: %t", n, p.usable())
		}
	})
}

// An operator kills the statement in the middle of its transaction. The session must not go on with what is left of it.
func TestTheClaimIsKilled(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		drivers := db.drivers(t, 2)
		d := db.add(t, nil)
		tx := db.begun(t)
		// The claim waits after its first write: for the key of its claim.
		must(t, errorOf(tx.Exec("INSERT INTO claims VALUES ('clm_x', ?, 1, 'drv_x', 1, 'WON', 1, NULL)", d.ID)))
		ended := claiming(t, db.Store, d.ID, drivers[0].ID)
		db.waiting(t)
		sessions := servertest.Sessions(t, db.raw)
		i := slices.IndexFunc(sessions, func(s servertest.Session) bool {
			return strings.Contains(s.Statement, "INTO claims") || strings.Contains(s.Statement, callOfClaim)
		})
		if i < 0 {
			t.Fatalf("the claim is not among %+v", sessions)
		}
		db.exec(t, "KILL QUERY "+sessions[i].ID)
		mustBeError(t, "the claim is killed", testkit.Await(t, "the claim's end", ended), dispatch.ErrUnavailable)
		must(t, tx.Rollback())
		db.mustStore(t, d)
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustStore(t, db.mustAccept(t, d.ID, drivers[1].ID))
	})
}

// The row that bars the claim is there, so the claim is committed; but the server that is asked for its time does not have it.
func TestTheClaimIsOnAnotherServer(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		snapshot, err := db.readClaimSnapshot(t.Context(), d.ID, v.ID)
		must(t, err)
		events, err := rule(1)(&d, snapshot.candidate, snapshot.now)
		must(t, err)
		db.bar(t, events[0].ID)
		err = db.resolve(t.Context(), &d, events, dispatch.ErrUnknown)
		if !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// A request whose context ends while it waits for a connection has written nothing.
func TestNoConnectionForTheClaim(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		for range decideConns {
			conn, err := db.procedure.pool.Conn(t.Context())
			must(t, err)
			t.Cleanup(func() { conn.Close() })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := db.accept(ctx, d.ID, v.ID)
		mustBeError(t, "no connection is free", err, dispatch.ErrUnavailable)
		if errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("nothing was sent: %v", err)
		}
	})
}
