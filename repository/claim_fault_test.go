package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

// hold locks the dispatch's row in another session until the test ends or release is called.
func (db *database) hold(t testing.TB, id dispatch.ID) (tx *sql.Tx, release func()) {
	t.Helper()
	tx = db.begun(t)
	must(t, errorOf(tx.Exec("UPDATE dispatches SET note = note WHERE id = ?", id)))
	return tx, func() { tx.Rollback() }
}

var lockWait = regexp.MustCompile(`(?s)\nLOCK WAIT .*?thread id (\d+),`)

// waiting waits until a session waits for a row lock in this database.
func (db *database) waiting(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "a session waits for a row", func() bool {
		if db.dialect.name == migrations.TiDB {
			return db.count(t, "information_schema.tidb_trx WHERE db = DATABASE() AND state = 'LockWaiting'") > 0
		}
		var engine, name, status string
		// Unlike information_schema.innodb_trx it is never old, however many tests ask.
		must(t, db.raw.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status))
		_, transactions, _ := strings.Cut(status, "LIST OF TRANSACTIONS FOR EACH SESSION")
		for transaction := range strings.SplitSeq(transactions, "---TRANSACTION") {
			waits := lockWait.FindStringSubmatch(transaction)
			if waits != nil && slices.ContainsFunc(servertest.Sessions(t, db.raw), func(s servertest.Session) bool { return s.ID == waits[1] }) {
				return true
			}
		}
		return false
	})
}

// A claim waits for a locked row for as long as its transaction may, and then says that nothing was written.
func TestClaimOfALockedRow(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, release := db.hold(t, d.ID)
		mustBeError(t, "a claim of a locked row", errorOf(db.impatient(t).accept(t.Context(), d.ID, v.ID)), dispatch.ErrUnavailable)
		release()
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustAccept(t, d.ID, v.ID)
	})
}

// Reads are answered while more claims wait for a row than there are connections for claims.
func TestReadsDoNotWaitForClaims(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		d, other, drivers := db.add(t, nil), db.add(t, nil), db.drivers(t, 2*decideConns)
		_, release := db.hold(t, d.ID)
		done := make(chan struct{})
		go func() {
			defer close(done)
			testkit.Together(len(drivers), func(i int) {
				if _, err := db.accept(t.Context(), d.ID, drivers[i].ID); err != nil && !errors.Is(err, dispatch.ErrAlreadyTaken) {
					t.Error(err)
				}
			})
		}()
		db.waiting(t)
		for range 20 {
			if _, err := db.Dispatch(t.Context(), other.ID); err != nil {
				t.Error(err)
			}
			if _, err := db.Driver(t.Context(), drivers[0].ID); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-done:
			t.Error("the claims did not wait")
		default:
		}
		release()
		testkit.Await(t, "the claims' end", done)
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// The server's own limit is longer than the test waits.
func TestUpdateOfALockedRow(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.hold(t, d.ID)
		db = db.usual(t)
		ended := begin(func() error {
			_, err := db.Update(t.Context(), d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
				t.Error("the change was asked")
				return nil, nil
			})
			return err
		})
		mustBeError(t, "an update of a locked row", testkit.Await(t, "the update's end", ended), dispatch.ErrUnavailable)
	})
}

// A row that the claim was decided on changes while its UPDATE waits for the row lock.
func TestRowChangesWhileTheUpdateWaits(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		tests := []struct{ name, moves string }{
			{"round", "UPDATE dispatches SET round = round + 1, version = version + 1 WHERE id = ?"},
			{"status", "UPDATE dispatches SET status = 'CANCELED', version = version + 1 WHERE id = ?"},
			{"expires_at", "UPDATE dispatches SET expires_at = opens_at + 1, version = version + 1 WHERE id = ?"},
			{"driver", "UPDATE drivers SET on_duty = FALSE, version = version + 1 WHERE 'dsp' <> ?"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				if tt.name == "driver" {
					db.notOnTiDB(t, "claim that waits for the dispatch before it locks the driver")
				}
				d, v := db.add(t, nil), db.drivers(t, 1)[0]
				tx, _ := db.hold(t, d.ID)
				ended := begin(func() error { return errorOf(db.Claim(t.Context(), d.ID, v.ID, rule(1))) })
				db.waiting(t)
				must(t, errorOf(tx.Exec(tt.moves, d.ID)))
				must(t, tx.Commit())
				if err := <-ended; err == nil || errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("got %v, want what the row says now", err)
				}
				db.mustHold(t, 0, dispatch.EventAccepted, 0)
			})
		}
	})
}

// callOfClaim is how a claim is written on a server, in one packet.
const callOfClaim = "CALL firsttap_claim"

// decider is a way to give a dispatch to a driver.
type decider struct {
	last string // the last packet that it sends
	do   func(*Store, context.Context, dispatch.ID, dispatch.DriverID) (dispatch.Dispatch, error)
}

var deciders = map[string]decider{
	"a claim": {callOfClaim, func(s *Store, ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Dispatch, error) {
		return s.Claim(ctx, id, driver, rule(0))
	}},
	"an assignment": {"COMMIT", func(s *Store, ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Dispatch, error) {
		return s.Assign(ctx, id, driver, assigning(1))
	}},
}

// held begins to decide, and returns when the last packet waits at the proxy.
func (d decider) held(ctx context.Context, t testing.TB, s *Store, proxy *servertest.Proxy, id dispatch.ID, driver dispatch.DriverID) (*servertest.Hold, <-chan error) {
	t.Helper()
	hold := proxy.Hold(d.last)
	ended := begin(func() error { return errorOf(d.do(s, ctx, id, driver)) })
	testkit.Await(t, "the "+d.last, hold.Reached())
	return hold, ended
}

// eachDecider runs the test with each way to give a dispatch to a driver, on each server.
func eachDecider(t *testing.T, test func(*testing.T, *database, decider)) {
	t.Helper()
	t.Parallel()
	for what, d := range deciders {
		t.Run(what, func(t *testing.T) {
			everyServer(t, func(t *testing.T, db *database) {
				if d.last == callOfClaim {
					db.notOnTiDB(t, "stored procedures")
				}
				test(t, db, d)
			})
		})
	}
}

func TestTheReplyOfACommitIsLost(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *database, by decider) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		cut := proxy.CutReply(by.last)
		got, err := by.do(s, t.Context(), d.ID, v.ID)
		testkit.Await(t, "the cut", cut.Done())
		if err != nil {
			t.Fatalf("it was committed, and the driver gets %v", err)
		}
		db.mustStore(t, got)
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitIsLostAndTheDatabaseCannotBeAsked(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *database, by decider) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, ended := by.held(t.Context(), t, s, proxy, d.ID, v.ID)
		proxy.Refuse(true)
		mustBeError(t, "it may yet arrive", testkit.Await(t, "the end", ended), dispatch.ErrUnknown)
		proxy.Refuse(false)
		// Asking again gets the truth: it never arrived.
		testkit.Retry(t, func() error { return errorOf(by.do(s, t.Context(), d.ID, v.ID)) })
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// severed decides by way of two proxies. When it returns, the last packet waits at far, which is next to the server, and the connection
// to the other is gone.
func (db *database) severed(t *testing.T, by decider, id dispatch.ID, driver dispatch.DriverID) (far *servertest.Proxy, hold *servertest.Hold, ended <-chan error) {
	t.Helper()
	_, far = db.proxied(t)
	near := servertest.StartProxy(t, far.Addr())
	s := openWith(t, near.URL(db.url), Options{Log: quiet, Patience: db.options.Patience})
	hold, ended = by.held(t.Context(), t, s, far, id, driver)
	near.CutAll()
	return far, hold, ended
}

// A claim that is said to be not committed never will be, also if the server receives it later.
func TestTheCommitArrivesLate(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "stored procedures")
		drivers := db.drivers(t, 2)
		d := db.add(t, nil)
		far, hold, ended := db.severed(t, deciders["a claim"], d.ID, drivers[0].ID)
		mustBeError(t, "the claim is still on its way", testkit.Await(t, "the claim's end", ended), dispatch.ErrUnavailable)
		executed := far.CutReply(callOfClaim)
		hold.Release()
		testkit.Await(t, "the late claim", executed.Done())
		db.mustStore(t, d)
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustAccept(t, d.ID, drivers[1].ID)
	})
}

// The server executes the claim, and waits for a row, when the connection is lost.
func TestTheClaimIsExecutedAfterItsConnection(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		drivers := db.drivers(t, 2)
		d := db.add(t, nil)
		_, free := db.hold(t, d.ID)
		s, proxy := db.proxied(t)
		ended := claiming(t, s, d.ID, drivers[0].ID)
		db.waiting(t)
		proxy.CutAll()
		mustBeError(t, "the claim's connection is lost", testkit.Await(t, "the claim's end", ended), dispatch.ErrUnavailable)
		free()
		testkit.Eventually(t, "the server has executed the claim", func() bool {
			return !slices.ContainsFunc(servertest.Sessions(t, db.raw), func(s servertest.Session) bool { return s.Statement != "" })
		})
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustAccept(t, d.ID, drivers[1].ID)
	})
}

// A look for an assignment that does not wait for its transaction would not find it, and would be wrong.
func TestTheCommitOfAnAssignmentArrivesLate(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, hold, ended := db.severed(t, deciders["an assignment"], d.ID, v.ID)
		db.waiting(t)
		hold.Release()
		if err := testkit.Await(t, "the assignment's end", ended); err != nil {
			t.Errorf("it was committed, and Assign says %v", err)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitStaysOnItsWay(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db = db.impatient(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, hold, ended := db.severed(t, deciders["an assignment"], d.ID, v.ID)
		mustBeError(t, "the COMMIT may yet arrive", testkit.Await(t, "the assignment's end", ended), dispatch.ErrUnknown)
		hold.Release()
		testkit.Retry(t, func() error {
			if n := db.count(t, "claims"); n != 1 {
				return fmt.Errorf("%d claims", n)
			}
			return nil
		})
	})
}

func TestACommitThatIsNotAnsweredEndsWithItsContext(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *database, by decider) {
		db = db.impatient(t)
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, ended := by.held(ctx, t, s, proxy, d.ID, v.ID)
		cancel()
		if err := testkit.Await(t, "the end", ended); err == nil {
			t.Error("it never arrived, and is said to be committed")
		}
	})
}

func TestTheCommitNeverArrives(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *database, by decider) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, ended := by.held(t.Context(), t, s, proxy, d.ID, v.ID)
		cutAll(s, proxy)
		err := <-ended
		mustBeError(t, "the database says that there is no claim", err, dispatch.ErrUnavailable)
		if strings.Contains(fmt.Sprint(err), "%!") {
			t.Errorf("the message is %q", err)
		}
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		must(t, errorOf(by.do(db.Store, t.Context(), d.ID, v.ID)))
		// The row that bars the claim is nobody's event, is never due, and expires.
		db.mustCount(t, 1, "events WHERE dispatch_id = '' AND type = '' AND next_at IS NULL AND claim = ''")
		db.exec(t, "UPDATE events SET at = at - ?", (keepDone - time.Hour).Microseconds())
		db.mustPrune(t, 0)
		db.exec(t, "UPDATE events SET at = at - ?", time.Hour.Microseconds())
		db.mustPrune(t, 1)
	})
}

func TestTheReplyOfAStatementIsLost(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		for _, statement := range []string{"UPDATE dispatches", "INTO `claims`", "INTO `events`"} {
			d, v := db.add(t, nil), db.drivers(t, 1)[0]
			mustLose(t, proxy, statement, dispatch.ErrUnavailable, func() error { return errorOf(s.Assign(t.Context(), d.ID, v.ID, assigning(1))) })
			db.mustStore(t, d)
			db.mustHold(t, 0, dispatch.EventAccepted, 0)
		}
	})
}

// The COMMIT of a change gets no reply. If the change was committed, it is announced at once. Otherwise it never will be committed.
func TestUpdateWhoseCommitIsLost(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		var announced []dispatch.EventType
		behind := func() (*Store, *servertest.Proxy) {
			s, proxy := db.proxied(t)
			s.options.OnCommit = func(_ dispatch.Dispatch, events []dispatch.Event) {
				announced = append(announced, events[0].Type)
			}
			return s, proxy
		}
		s, proxy := behind()
		var d dispatch.Dispatch
		mustLose(t, proxy, "COMMIT", nil, func() error {
			d = db.by(s).add(t, nil)
			return nil
		})
		s, proxy = behind()
		mustLose(t, proxy, "COMMIT", nil, func() error { return s.Decline(t.Context(), d.ID, 1, db.drivers(t, 1)[0].ID, "FAR") })
		s, proxy = behind()
		mustLose(t, proxy, "COMMIT", nil, func() error { return errorOf(s.Update(t.Context(), d.ID, cancel)) })
		if got := db.mustRead(t, d.ID); got.Status != dispatch.Canceled {
			t.Errorf("the dispatch is %s", got.Status)
		}
		testkit.Equal(t, "what is announced", []dispatch.EventType{dispatch.EventCreated, dispatch.EventDeclined, dispatch.EventCanceled}, announced)

		d, announced = db.add(t, nil), nil
		s, proxy = behind()
		_, ended := untilCommit(t, proxy, func() error { return errorOf(s.Update(t.Context(), d.ID, cancel)) })
		cutAll(s, proxy)
		mustBeError(t, "the COMMIT never arrives", testkit.Await(t, "the end", ended), dispatch.ErrUnavailable)
		db.mustStore(t, d)
		testkit.Equal(t, "what is announced", 0, len(announced))
	})
}
