package dispatches_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

// A claim waits for a locked row for as long as its transaction may, and then says that nothing was written.
func TestClaimOfALockedRow(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		_, release := db.Hold(t, d.ID)
		MustBeError(t, "a claim of a locked row", ErrorOf(db.Impatient(t).Accept(t.Context(), d.ID, v.ID)), dispatch.ErrUnavailable)
		release()
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
		db.MustAccept(t, d.ID, v.ID)
	})
}

// Reads are answered while more claims wait for a row than there are connections for claims.
func TestReadsDoNotWaitForClaims(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		d, other, drivers := db.Add(t, nil), db.Add(t, nil), db.Fleet(t, 2*db.Pools()["decide"].Stats().MaxOpenConnections)
		_, release := db.Hold(t, d.ID)
		done := make(chan struct{})
		go func() {
			defer close(done)
			testkit.Together(len(drivers), func(i int) {
				if _, err := db.Accept(t.Context(), d.ID, drivers[i].ID); err != nil && !errors.Is(err, dispatch.ErrAlreadyTaken) {
					t.Error(err)
				}
			})
		}()
		db.Waiting(t)
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
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// The server's own limit is longer than the test waits.
func TestUpdateOfALockedRow(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		db.Hold(t, d.ID)
		db = db.Usual(t)
		ended := Begin(func() error {
			_, err := db.Update(t.Context(), d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
				t.Error("the change was asked")
				return nil, nil
			})
			return err
		})
		MustBeError(t, "an update of a locked row", testkit.Await(t, "the update's end", ended), dispatch.ErrUnavailable)
	})
}

// A row that the claim was decided on changes while its UPDATE waits for the row lock.
func TestRowChangesWhileTheUpdateWaits(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		tests := []struct{ name, moves string }{
			{"round", "UPDATE dispatches SET round = round + 1, version = version + 1 WHERE id = ?"},
			{"status", "UPDATE dispatches SET status = 'CANCELED', version = version + 1 WHERE id = ?"},
			{"expires_at", "UPDATE dispatches SET expires_at = opens_at + 1, version = version + 1 WHERE id = ?"},
			{"driver", "UPDATE drivers SET on_duty = FALSE, version = version + 1 WHERE 'dsp' <> ?"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				if tt.name == "driver" {
					db.NotOnTiDB(t, "claim that waits for the dispatch before it locks the driver")
				}
				d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
				tx, _ := db.Hold(t, d.ID)
				ended := Begin(func() error { return ErrorOf(db.Claim(t.Context(), d.ID, v.ID, Rule(1))) })
				db.Waiting(t)
				Must(t, ErrorOf(tx.Exec(tt.moves, d.ID)))
				Must(t, tx.Commit())
				if err := <-ended; err == nil || errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("got %v, want what the row says now", err)
				}
				db.MustHold(t, 0, dispatch.EventAccepted, 0)
			})
		}
	})
}

// decider is a way to give a dispatch to a driver.
type decider struct {
	last string // the last packet that it sends
	do   func(*repository.Store, context.Context, dispatch.ID, dispatch.DriverID) (dispatch.Dispatch, error)
}

var deciders = map[string]decider{
	"a claim": {CallOfClaim, func(s *repository.Store, ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Dispatch, error) {
		return s.Dispatches.Claim(ctx, id, driver, Rule(0))
	}},
	"an assignment": {"COMMIT", func(s *repository.Store, ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Dispatch, error) {
		return s.Dispatches.Assign(ctx, id, driver, Assigning(1))
	}},
}

// held begins to decide, and returns when the last packet waits at the proxy.
func (d decider) held(ctx context.Context, t testing.TB, s *repository.Store, proxy *servertest.Proxy, id dispatch.ID, driver dispatch.DriverID) (*servertest.Hold, <-chan error) {
	t.Helper()
	hold := proxy.Hold(d.last)
	ended := Begin(func() error { return ErrorOf(d.do(s, ctx, id, driver)) })
	testkit.Await(t, "the "+d.last, hold.Reached())
	return hold, ended
}

// eachDecider runs the test with each way to give a dispatch to a driver, on each server.
func eachDecider(t *testing.T, test func(*testing.T, *Bench, decider)) {
	t.Helper()
	t.Parallel()
	for what, d := range deciders {
		t.Run(what, func(t *testing.T) {
			EveryServer(t, func(t *testing.T, db *Bench) {
				if d.last == CallOfClaim {
					db.NotOnTiDB(t, "stored procedures")
				}
				test(t, db, d)
			})
		})
	}
}

func TestTheReplyOfACommitIsLost(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *Bench, by decider) {
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		cut := proxy.CutReply(by.last)
		got, err := by.do(s, t.Context(), d.ID, v.ID)
		testkit.Await(t, "the cut", cut.Done())
		if err != nil {
			t.Fatalf("it was committed, and the driver gets %v", err)
		}
		db.MustStore(t, got)
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// What loses the reply may close all connections, one after the other. So the reply to the question about the outcome is lost too.
func TestTheNextReplyIsLostToo(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *Bench, by decider) {
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 2)
		_, ended := by.held(t.Context(), t, s, proxy, d.ID, v[0].ID)
		lost := proxy.CutReply("INSERT INTO events")
		CutAll(s, proxy)
		MustBeError(t, "it never arrives", testkit.Await(t, "the end", ended), dispatch.ErrUnavailable)
		testkit.Await(t, "the second cut", lost.Done())
		db.MustHold(t, 0, dispatch.EventAccepted, 0)

		s, proxy = db.Proxied(t)
		cut, lost := proxy.CutReply(by.last), proxy.CutReply("INSERT INTO events")
		if err := ErrorOf(by.do(s, t.Context(), d.ID, v[1].ID)); err != nil {
			t.Errorf("it was committed, and the driver gets %v", err)
		}
		testkit.Await(t, "the cuts", cut.Done())
		testkit.Await(t, "the cuts", lost.Done())
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitIsLostAndTheDatabaseCannotBeAsked(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *Bench, by decider) {
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		_, ended := by.held(t.Context(), t, s, proxy, d.ID, v.ID)
		proxy.Refuse(true)
		MustBeError(t, "it may yet arrive", testkit.Await(t, "the end", ended), dispatch.ErrUnknown)
		proxy.Refuse(false)
		// Asking again gets the truth: it never arrived.
		testkit.Retry(t, func() error { return ErrorOf(by.do(s, t.Context(), d.ID, v.ID)) })
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// severed decides by way of two proxies. When it returns, the last packet waits at far, which is next to the server, and the connection
// to the other is gone.
func severed(db *Bench, t *testing.T, by decider, id dispatch.ID, driver dispatch.DriverID) (far *servertest.Proxy, hold *servertest.Hold, ended <-chan error) {
	t.Helper()
	_, far = db.Proxied(t)
	near := servertest.StartProxy(t, far.Addr())
	s := OpenWith(t, near.URL(db.URL), repository.Options{Log: Quiet, Patience: db.Patience})
	hold, ended = by.held(t.Context(), t, s, far, id, driver)
	near.CutAll()
	return far, hold, ended
}

// A claim that is said to be not committed never will be, also if the server receives it later.
func TestTheCommitArrivesLate(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db.NotOnTiDB(t, "stored procedures")
		drivers := db.Fleet(t, 2)
		d := db.Add(t, nil)
		far, hold, ended := severed(db, t, deciders["a claim"], d.ID, drivers[0].ID)
		MustBeError(t, "the claim is still on its way", testkit.Await(t, "the claim's end", ended), dispatch.ErrUnavailable)
		executed := far.CutReply(CallOfClaim)
		hold.Release()
		testkit.Await(t, "the late claim", executed.Done())
		db.MustStore(t, d)
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
		db.MustAccept(t, d.ID, drivers[1].ID)
	})
}

// The server executes the claim, and waits for a row, when the connection is lost.
func TestTheClaimIsExecutedAfterItsConnection(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		drivers := db.Fleet(t, 2)
		d := db.Add(t, nil)
		_, free := db.Hold(t, d.ID)
		s, proxy := db.Proxied(t)
		ended := Claiming(t, s, d.ID, drivers[0].ID)
		db.Waiting(t)
		proxy.CutAll()
		MustBeError(t, "the claim's connection is lost", testkit.Await(t, "the claim's end", ended), dispatch.ErrUnavailable)
		free()
		testkit.Eventually(t, "the server has executed the claim", func() bool {
			return !slices.ContainsFunc(servertest.Sessions(t, db.Raw), func(s servertest.Session) bool { return s.Statement != "" })
		})
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
		db.MustAccept(t, d.ID, drivers[1].ID)
	})
}

// A look for an assignment that does not wait for its transaction would not find it, and would be wrong.
func TestTheCommitOfAnAssignmentArrivesLate(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		_, hold, ended := severed(db, t, deciders["an assignment"], d.ID, v.ID)
		db.Waiting(t)
		hold.Release()
		if err := testkit.Await(t, "the assignment's end", ended); err != nil {
			t.Errorf("it was committed, and Assign says %v", err)
		}
		db.MustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitStaysOnItsWay(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		db = db.Impatient(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		_, hold, ended := severed(db, t, deciders["an assignment"], d.ID, v.ID)
		MustBeError(t, "the COMMIT may yet arrive", testkit.Await(t, "the assignment's end", ended), dispatch.ErrUnknown)
		hold.Release()
		testkit.Retry(t, func() error {
			if n := db.Count(t, "claims"); n != 1 {
				return fmt.Errorf("%d claims", n)
			}
			return nil
		})
	})
}

func TestACommitThatIsNotAnsweredEndsWithItsContext(t *testing.T) {
	eachDecider(t, func(t *testing.T, db *Bench, by decider) {
		db = db.Impatient(t)
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
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
	eachDecider(t, func(t *testing.T, db *Bench, by decider) {
		s, proxy := db.Proxied(t)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		_, ended := by.held(t.Context(), t, s, proxy, d.ID, v.ID)
		CutAll(s, proxy)
		err := <-ended
		MustBeError(t, "the database says that there is no claim", err, dispatch.ErrUnavailable)
		if strings.Contains(fmt.Sprint(err), "%!") {
			t.Errorf("the message is %q", err)
		}
		db.MustHold(t, 0, dispatch.EventAccepted, 0)
		Must(t, ErrorOf(by.do(db.Store, t.Context(), d.ID, v.ID)))
		// The row that bars the claim is nobody's event, is never due, and expires.
		db.MustCount(t, 1, "events WHERE dispatch_id = '' AND type = '' AND next_at IS NULL AND claim = ''")
		db.Exec(t, "UPDATE events SET at = at - ?", (pushes.KeepDone - time.Hour).Microseconds())
		db.MustPrune(t, 0)
		db.Exec(t, "UPDATE events SET at = at - ?", time.Hour.Microseconds())
		db.MustPrune(t, 1)
	})
}

func TestTheReplyOfAStatementIsLost(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		s, proxy := db.Proxied(t)
		for _, statement := range []string{"UPDATE dispatches", "INTO `claims`", "INTO `events`"} {
			d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
			MustLose(t, proxy, statement, dispatch.ErrUnavailable, func() error {
				return ErrorOf(s.Dispatches.Assign(t.Context(), d.ID, v.ID, Assigning(1)))
			})
			db.MustStore(t, d)
			db.MustHold(t, 0, dispatch.EventAccepted, 0)
		}
	})
}

// The COMMIT of a change gets no reply. If the change was committed, it is announced at once. Otherwise it never will be committed.
func TestUpdateWhoseCommitIsLost(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		var announced []dispatch.EventType
		behind := func() (*repository.Store, *servertest.Proxy) {
			return db.Proxied(t, func(o *repository.Options) {
				o.OnCommit = func(_ dispatch.Dispatch, events []dispatch.Event) { announced = append(announced, events[0].Type) }
			})
		}
		s, proxy := behind()
		var d dispatch.Dispatch
		MustLose(t, proxy, "COMMIT", nil, func() error {
			d = db.By(s).Add(t, nil)
			return nil
		})
		s, proxy = behind()
		MustLose(t, proxy, "COMMIT", nil, func() error { return s.Offers.Decline(t.Context(), d.ID, 1, db.Fleet(t, 1)[0].ID, "FAR") })
		s, proxy = behind()
		MustLose(t, proxy, "COMMIT", nil, func() error {
			return ErrorOf(s.Dispatches.Update(t.Context(), d.ID, Cancel))
		})
		if got := db.MustRead(t, d.ID); got.Status != dispatch.Canceled {
			t.Errorf("the dispatch is %s", got.Status)
		}
		testkit.Equal(t, "what is announced", []dispatch.EventType{dispatch.EventCreated, dispatch.EventDeclined, dispatch.EventCanceled}, announced)

		d, announced = db.Add(t, nil), nil
		s, proxy = behind()
		_, ended := UntilCommit(t, proxy, func() error {
			return ErrorOf(s.Dispatches.Update(t.Context(), d.ID, Cancel))
		})
		CutAll(s, proxy)
		MustBeError(t, "the COMMIT never arrives", testkit.Await(t, "the end", ended), dispatch.ErrUnavailable)
		db.MustStore(t, d)
		testkit.Equal(t, "what is announced", 0, len(announced))
	})
}
