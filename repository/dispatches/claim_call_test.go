//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package dispatches_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/repository/dispatches"
	. "firsttap/repository/repositorytest"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// A claim is one statement after one that reads, or alone where the process knows dispatch and driver. The process learns the
// dispatch by creating it, the driver by reading for an earlier claim.
func TestStatementsOfAClaim(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		db, w := db.Counting(t)
		v := db.Fleet(t, 1)[0]
		for day, want := range [][]string{{"decide select", "decide call"}, {"decide call"}, {"decide call"}} {
			d := db.Add(t, Later(day))
			w.Take()
			got := db.MustAccept(t, d.ID, v.ID)
			testkit.Equal(t, "the statements", want, w.Take())
			db.MustStore(t, got)
		}
	})
}

// A process that has not created a dispatch claims it without reading it, if it knows the driver and the driver has looked at the offer.
func TestClaimAfterALook(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		other := db.By(OpenPatient(t, db.URL))
		db, w := db.Counting(t)
		v := db.Fleet(t, 1)[0]
		db.MustAccept(t, db.Add(t, nil).ID, v.ID) // now the process knows the driver
		looks := []func(dispatch.ID) error{
			func(id dispatch.ID) error { return ErrorOf(db.OfferTo(t.Context(), id, v.ID)) },
			func(dispatch.ID) error {
				return ErrorOfPage(db.OpenDispatchesFor(t.Context(), v, dispatch.Page{Limit: 10}))
			},
		}
		for day, look := range looks {
			d := other.Add(t, Later(day+1))
			Must(t, look(d.ID))
			w.Take()
			got := db.MustAccept(t, d.ID, v.ID)
			testkit.Equal(t, "the statements", []string{"decide call"}, w.Take())
			db.MustStore(t, got)
		}
	})
}

// What a process knows may be old: it decides on what the database says.
func TestClaimOnOldKnowledge(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		other := db.By(OpenPatient(t, db.URL))
		drivers := db.Fleet(t, 3)
		for day, v := range drivers {
			db.MustAccept(t, db.Add(t, Later(10+day)).ID, v.ID) // now it knows the driver
		}
		tests := []struct {
			name   string
			change func(d dispatch.Dispatch)
			want   error
		}{
			{"canceled", func(d dispatch.Dispatch) { other.MustUpdate(t, d.ID, Cancel) }, dispatch.ErrCanceled},
			{"taken", func(d dispatch.Dispatch) { other.MustAccept(t, d.ID, drivers[1].ID) }, dispatch.ErrAlreadyTaken},
			{"off duty", func(dispatch.Dispatch) {
				Must(t, ErrorOfPage(other.SetDuty(t.Context(), drivers[0].ID, false)))
			}, dispatch.ErrNotEligible},
			{"on duty", func(dispatch.Dispatch) {
				Must(t, ErrorOfPage(other.SetDuty(t.Context(), drivers[0].ID, true)))
			}, nil},
			{"busy", func(d dispatch.Dispatch) {
				same := other.Add(t, func(o *dispatch.Dispatch) { o.WorkStartsAt, o.WorkEndsAt = d.WorkStartsAt, d.WorkEndsAt })
				other.MustAccept(t, same.ID, drivers[0].ID)
			}, dispatch.ErrDriverBusy},
			{"of another history", func(d dispatch.Dispatch) {
				db.Exec(t, "UPDATE dispatches SET note = 'other terms', updated_at = updated_at + 7 WHERE id = ?", d.ID)
			}, nil},
			{"off duty in another history", func(dispatch.Dispatch) {
				db.Exec(t, "UPDATE drivers SET on_duty = FALSE, updated_at = updated_at + 7 WHERE id = ?", drivers[0].ID)
			}, dispatch.ErrNotEligible},
			{"back on duty", func(dispatch.Dispatch) {
				Must(t, ErrorOfPage(other.SetDuty(t.Context(), drivers[0].ID, true)))
			}, nil},
			{"extended", func(d dispatch.Dispatch) { other.MustUpdate(t, d.ID, Extended(1)) }, nil},
		}
		for day, tt := range tests {
			d := db.Add(t, Later(day))
			tt.change(d)
			got, err := db.Accept(t.Context(), d.ID, drivers[0].ID)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if err == nil {
				db.MustStore(t, got)
			}
		}
	})
}

// A busy process uses a slow reading of the database's clock until it has a quick one.
func TestSlowReadingOfTheClock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) { // where no quick reading gets slow
		k := dispatches.NewLastKnown()
		for _, reading := range []struct {
			what              string
			ahead, took, want time.Duration
		}{
			{"the first, a slow one, is used", time.Hour, time.Minute, time.Hour},
			{"another slow one replaces it", -2 * time.Hour, time.Minute, -2 * time.Hour},
			{"a quick one replaces it", 3 * time.Hour, dispatches.MaxClockDelay, 3 * time.Hour},
			{"a slow one does not replace a quick one", time.Hour, time.Minute, 3 * time.Hour},
		} {
			k.LearnTime(time.Now().Add(reading.ahead), time.Now().Add(-reading.took))
			if ahead, read := k.Ahead(); !read || ahead != reading.want {
				t.Errorf("%s: %s", reading.what, ahead)
			}
		}
	})
}

// A process that is wrong about the database's time is neither early nor late, and a driver does not escape a suspension.
func TestClaimAtAWrongTime(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		db, w := db.Counting(t)
		v := db.Fleet(t, 1)[0].ID
		db.MustAccept(t, db.Add(t, nil).ID, v)
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
			{"not open yet", 90 * time.Minute, Soon, dispatch.ErrNotOpenYet},
			{"expired", -2 * time.Hour, since(2 * time.Hour), dispatch.ErrExpired},
			{"open", -2 * time.Hour, since(4 * time.Hour), nil},
			{"open, in the future", time.Minute, nil, nil},
			{"suspended", time.Hour, func(d *dispatch.Dispatch) {
				d.ExpiresAt = d.CreatedAt.Add(3 * time.Hour)
				db.Exec(t, "UPDATE drivers SET suspended_until = ?, version = version + 1", until.UnixMicro())
				db.LastKnown().ForgetDrivers()
				db.LastKnown().SetAhead(0)
				_, _ = db.Accept(t.Context(), db.Add(t, Later(20)).ID, v) // now it knows the suspension
			}, dispatch.ErrNotEligible},
		} {
			d := db.Add(t, func(d *dispatch.Dispatch) {
				Later(i + 1)(d)
				if tt.edit != nil {
					tt.edit(d)
				}
			})
			db.LastKnown().SetAhead(tt.ahead)
			w.Take()
			got, err := db.Accept(t.Context(), d.ID, v)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if statements := w.Take(); statements[0] != "decide call" {
				t.Errorf("%s: it was not decided at the wrong time first: %q", tt.name, statements)
			}
			if err == nil {
				db.MustStore(t, got)
			}
			if err == nil && tt.ahead > 0 {
				db.MustUpdate(t, d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
					return d.Unassign(d.Version, dispatch.System, "", now)
				})
				mustHaveEvents(db, t, d.ID, dispatch.EventAccepted, dispatch.EventUnassigned, dispatch.EventReopened)
			}
		}
	})
}

// mustHaveEvents fails the test unless these are the dispatch's last events, in this order.
func mustHaveEvents(db *Bench, t *testing.T, id dispatch.ID, want ...dispatch.EventType) {
	t.Helper()
	events, _, err := db.Events(t.Context(), id, dispatch.Page{Limit: 200})
	Must(t, err)
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
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		v := db.Fleet(t, 1)[0]
		for day := range 2 {
			db.Exec(t, "DROP PROCEDURE "+db.Procedure().Name())
			db.MustStore(t, db.MustAccept(t, db.Add(t, Later(day)).ID, v.ID))
			db.MustCount(t, 1, "information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = ?", db.Procedure().Name())
		}
		if !db.Procedure().Usable() {
			t.Error("the procedure is no longer used")
		}
	})
}

// A user who may not create procedures claims all the same, in transactions, and an operator reads why.
func TestAUserWithoutPrivilegesForProcedures(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		const rows = "SELECT, INSERT, UPDATE, DELETE"
		drivers := db.Fleet(t, 4)
		race := func(db *Bench, day int) {
			d := db.Add(t, Later(day))
			db.PrepareClaims(t.Context())
			db.MustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				return db.Accept(t.Context(), d.ID, drivers[i].ID)
			}, func(int) error { return dispatch.ErrAlreadyTaken })
		}
		mayExecute, log := db.Restricted(t, rows+", EXECUTE")
		if race(mayExecute, 0); !mayExecute.Procedure().Usable() || log.String() != "" {
			t.Errorf("another user's procedure is not used: %s", log)
		}
		db.Exec(t, "DROP PROCEDURE "+db.Procedure().Name())
		for day := range 2 {
			race(mayExecute, 1+day)
		}
		same := db.Add(t, Later(1))
		for _, v := range drivers {
			if _, err := mayExecute.Accept(t.Context(), same.ID, v.ID); err == nil {
				MustBeError(t, "the winner's other work", ErrorOf(mayExecute.Accept(t.Context(), db.Add(t, Later(1)).ID, v.ID)), dispatch.ErrDriverBusy)
				break
			}
		}
		if said := log.String(); mayExecute.Procedure().Usable() || strings.Count(said, "CREATE ROUTINE") != 1 {
			t.Errorf("it logs %q", said)
		}
	})
}

// A database user without the privilege INSERT can't claim. After the user has got the privilege, a claim uses the procedure.
func TestAUserWithoutPrivilegesForTables(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		app, _ := db.Restricted(t, "SELECT, UPDATE, EXECUTE")
		_, err := app.Accept(t.Context(), d.ID, v.ID)
		MustBeError(t, "a claim that may not be inserted", err, dispatch.ErrUnavailable)
		if errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("nothing was written: %v", err)
		}
		db.MustStore(t, d)
		u, err := url.Parse(db.URL)
		Must(t, err)
		name := strings.TrimPrefix(u.Path, "/")
		db.Exec(t, "GRANT INSERT ON "+name+".* TO u"+name)
		app.MustAccept(t, d.ID, v.ID)
		if !app.Procedure().Usable() {
			t.Error("the procedure is not used any more")
		}
	})
}

// The server can't load the procedure: it is tried again after a pause, and each time a warning says so.
func TestProcedureThatIsNotLoaded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := &testkit.LogBuffer{}
		p := dispatches.NewClaimProcedure(nil, nil, slog.New(slog.NewTextHandler(log, nil)))
		for n := 1; n <= 2; n++ {
			testkit.Equal(t, "it is tried", true, p.Usable())
			for range 3 { // claims at once
				p.Refuse(&driver.MySQLError{Number: 1548, Message: "Cannot load from mysql.proc. The table is probably corrupted"})
			}
			time.Sleep(dispatches.UnusablePause - 1)
			testkit.Equal(t, "it is tried during the pause", false, p.Usable())
			time.Sleep(time.Nanosecond)
			testkit.Equal(t, "warnings", n, strings.Count(log.String(), "level=WARN"))
		}
	})
}

// An operator kills the statement in the middle of its transaction. The session must not go on with what is left of it.
func TestTheClaimIsKilled(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		drivers := db.Fleet(t, 2)
		d := db.Add(t, nil)
		tx := db.Begun(t)
		// The claim waits after its first write: for the key of its claim.
		Must(t, ErrorOf(tx.Exec("INSERT INTO claims VALUES ('clm_x', ?, 1, 'drv_x', 1, 'WON', 1, NULL)", d.ID)))
		ended := Claiming(t, db.Store, d.ID, drivers[0].ID)
		db.Waiting(t)
		sessions := servertest.Sessions(t, db.Raw)
		i := slices.IndexFunc(sessions, func(s servertest.Session) bool {
			return strings.Contains(s.Statement, "INTO claims") || strings.Contains(s.Statement, CallOfClaim)
		})
		if i < 0 {
			t.Fatalf("the claim is not among %+v", sessions)
		}
		db.Exec(t, "KILL QUERY "+sessions[i].ID)
		MustBeError(t, "the claim is killed", testkit.Await(t, "the claim's end", ended), dispatch.ErrUnavailable)
		Must(t, tx.Rollback())
		db.MustStore(t, d)
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
		db.MustStore(t, db.MustAccept(t, d.ID, drivers[1].ID))
	})
}

// The claim's event is there, so the claim is committed; but the server that is asked for its time does not have it.
func TestTheClaimIsOnAnotherServer(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		snapshot, err := db.ReadClaimSnapshot(t.Context(), d.ID, v.ID)
		Must(t, err)
		events, err := Rule(1)(&d, snapshot.Candidate(), snapshot.Now())
		Must(t, err)
		db.Bar(t, events[0].ID)
		db.Exec(t, "UPDATE events SET dispatch_id = ? WHERE id = ?", d.ID, events[0].ID)
		err = db.Resolve(t.Context(), &d, events, dispatch.ErrUnknown)
		if !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// A request whose context ends while it waits for a connection has written nothing.
func TestNoConnectionForTheClaim(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		for range db.Pools()["decide"].Stats().MaxOpenConnections {
			conn, err := db.Procedure().Pool().Conn(t.Context())
			Must(t, err)
			t.Cleanup(func() { conn.Close() })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := db.Accept(ctx, d.ID, v.ID)
		MustBeError(t, "no connection is free", err, dispatch.ErrUnavailable)
		if errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("nothing was sent: %v", err)
		}
	})
}
