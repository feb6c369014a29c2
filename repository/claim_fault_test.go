package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// hold locks the dispatch's row in another session until the test ends or release is called.
func (db *database) hold(t testing.TB, id dispatch.ID) (tx *sql.Tx, release func()) {
	t.Helper()
	tx, err := db.raw.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	if _, err := tx.Exec("UPDATE dispatches SET note = note WHERE id = ?", id); err != nil {
		t.Fatal(err)
	}
	return tx, func() { tx.Rollback() }
}

var lockWait = regexp.MustCompile(`(?s)\nLOCK WAIT .*?thread id (\d+),`)

// waiting waits until a session waits for a row lock in this database.
func (db *database) waiting(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "a session waits for a row", func() bool {
		var engine, name, status string
		// Unlike information_schema.innodb_trx it is never old, however many tests ask.
		if err := db.raw.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status); err != nil {
			t.Fatal(err)
		}
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

// A claim waits for a locked row for as long as its transaction may, and says that it doesn't know the answer.
func TestClaimOfALockedRow(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db = db.usual(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		_, release := db.hold(t, d.ID)
		if _, err := db.accept(t.Context(), d.ID, v.ID); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, dispatch.ErrUnavailable)
		}
		release()
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustAccept(t, d.ID, v.ID)
	})
}

// Reads are answered while more claims wait for a row than there are connections for claims.
func TestReadsDoNotWaitForClaims(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		d, other, drivers := db.add(t, nil), db.add(t, nil), db.drivers(t, 2*claimConns)
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
		db = db.usual(t)
		d := db.add(t, nil)
		db.hold(t, d.ID)
		ended := make(chan error, 1)
		go func() {
			_, err := db.Update(t.Context(), d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
				t.Error("the change was asked")
				return nil, nil
			})
			ended <- err
		}()
		if err := testkit.Await(t, "the update's end", ended); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, dispatch.ErrUnavailable)
		}
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
				d, v := db.add(t, nil), db.drivers(t, 1)[0]
				tx, _ := db.hold(t, d.ID)
				ended := make(chan error, 1)
				var got dispatch.Dispatch
				go func() {
					var err error
					got, err = db.Claim(t.Context(), d.ID, v.ID, rule(1))
					ended <- err
				}()
				db.waiting(t)
				if _, err := tx.Exec(tt.moves, d.ID); err != nil {
					t.Fatal(err)
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err == nil || errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("got %+v, %v", got, err)
				}
				db.mustHold(t, 0, dispatch.EventAccepted, 0)
			})
		}
	})
}

func TestTheReplyOfACommitIsLost(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		cut := proxy.CutReply("COMMIT")
		got, err := s.Claim(t.Context(), d.ID, v.ID, rule(0))
		testkit.Await(t, "the cut", cut.Done())
		if err != nil {
			t.Fatalf("the claim was committed, and Claim says %v", err)
		}
		if stored := db.mustRead(t, d.ID); !reflect.DeepEqual(stored, got) {
			t.Errorf("stored %+v, returned %+v", stored, got)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitIsLostAndTheDatabaseCannotBeAsked(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db = db.usual(t)
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		claim := rule(0)
		hold := proxy.Hold("COMMIT")
		ended := make(chan error, 1)
		go func() {
			_, err := s.Claim(t.Context(), d.ID, v.ID, claim)
			ended <- err
		}()
		testkit.Await(t, "the COMMIT", hold.Reached())
		proxy.Refuse(true)
		if err := testkit.Await(t, "the claim's end", ended); !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, dispatch.ErrUnknown)
		}
		hold.Release()
		proxy.Refuse(false)
		// Asking again gets the truth: it never arrived.
		testkit.Retry(t, func() error {
			_, err := s.Claim(t.Context(), d.ID, v.ID, claim)
			return err
		})
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

// severed claims the dispatch by way of two proxies. When it returns, the COMMIT waits at the one next to the
// server, and the claimant's connection to the other is gone.
func (db *database) severed(t *testing.T, id dispatch.ID, driver dispatch.DriverID) (*servertest.Hold, <-chan error) {
	t.Helper()
	_, far := db.proxied(t)
	near := servertest.StartProxy(t, far.Addr())
	s := openWith(t, near.URL(db.url), Options{Log: quiet, Patience: db.options.Patience})
	hold := far.Hold("COMMIT")
	ended := make(chan error, 1)
	go func() {
		_, err := s.Claim(t.Context(), id, driver, rule(0))
		ended <- err
	}()
	testkit.Await(t, "the COMMIT", hold.Reached())
	near.CutAll()
	return hold, ended
}

// A look for the claim without waiting for the row would not find it, and would be wrong.
func TestTheCommitArrivesLate(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold, ended := db.severed(t, d.ID, v.ID)
		db.waiting(t)
		hold.Release()
		if err := <-ended; err != nil {
			t.Errorf("the claim was committed, and Claim says %v", err)
		}
		db.mustHold(t, 1, dispatch.EventAccepted, 1)
	})
}

func TestTheCommitStaysOnItsWay(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		db = db.usual(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold, ended := db.severed(t, d.ID, v.ID)
		if err := testkit.Await(t, "the claim's end", ended); !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v, want %v: the COMMIT may yet arrive", err, dispatch.ErrUnknown)
		}
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
	everyServer(t, func(t *testing.T, db *database) {
		db = db.usual(t)
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold := proxy.Hold("COMMIT")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := s.Claim(ctx, d.ID, v.ID, rule(0))
			ended <- err
		}()
		testkit.Await(t, "the COMMIT", hold.Reached())
		cancel()
		if err := testkit.Await(t, "the claim's end", ended); err == nil {
			t.Error("the COMMIT never arrived, and Claim says that it did")
		}
	})
}

func TestTheCommitNeverArrives(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold := proxy.Hold("COMMIT")
		ended := make(chan error, 1)
		go func() {
			_, err := s.Claim(t.Context(), d.ID, v.ID, rule(0))
			ended <- err
		}()
		testkit.Await(t, "the COMMIT", hold.Reached())
		proxy.CutAll()
		err := <-ended
		if !errors.Is(err, dispatch.ErrUnavailable) || errors.Is(err, dispatch.ErrUnknown) {
			t.Errorf("got %v, want %v: the database says that there is no claim", err, dispatch.ErrUnavailable)
		}
		if strings.Contains(fmt.Sprint(err), "%!") {
			t.Errorf("the message is %q", err)
		}
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustAccept(t, d.ID, v.ID)
	})
}

func TestTheReplyOfAStatementIsLost(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		for _, statement := range []string{"UPDATE dispatches", "INTO `claims`", "INTO `events`", "INTO `outbox`"} {
			d, v := db.add(t, nil), db.drivers(t, 1)[0]
			cut := proxy.CutReply(statement)
			_, err := s.Claim(t.Context(), d.ID, v.ID, rule(0))
			testkit.Await(t, "the cut of "+statement, cut.Done())
			if !errors.Is(err, dispatch.ErrUnavailable) || errors.Is(err, dispatch.ErrUnknown) {
				t.Errorf("%s: got %v, want %v", statement, err, dispatch.ErrUnavailable)
			}
			if got := db.mustRead(t, d.ID); !reflect.DeepEqual(got, d) {
				t.Errorf("%s: the dispatch is %+v, was %+v", statement, got, d)
			}
			db.mustHold(t, 0, dispatch.EventAccepted, 0)
		}
	})
}

func TestUpdateWhoseCommitIsLost(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d := db.add(t, nil)
		cut := proxy.CutReply("COMMIT")
		_, err := s.Update(t.Context(), d.ID, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
			return d.Cancel(1, dispatch.System, "", now)
		})
		testkit.Await(t, "the cut", cut.Done())
		if !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, dispatch.ErrUnknown)
		}
		if got := db.mustRead(t, d.ID); got.Status != dispatch.Canceled {
			t.Errorf("the dispatch is %s", got.Status)
		}
	})
}
