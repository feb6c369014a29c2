package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// hang bounds what must come back by itself: many times over what it may take, which is a lock wait of 1 s.
const hang = 8 * time.Second

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

// waiting waits until a session waits for a row lock in this database.
func (db *database) waiting(t testing.TB) {
	t.Helper()
	// The server refreshes the table only if it was not read for 100 ms.
	tick := time.NewTicker(120 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		<-tick.C
		var n int
		err := db.raw.QueryRow(`SELECT COUNT(*) FROM information_schema.innodb_trx x
			JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
			WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("no session waits for a row")
}

func TestClaimOfALockedRow(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d, other, drivers := db.add(t, nil), db.add(t, nil), db.drivers(t, 2*claimConns)
		_, release := db.hold(t, d.ID)
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			// More than the pool of claims has connections.
			testkit.Together(len(drivers), func(i int) {
				if _, err := db.accept(t.Context(), d.ID, drivers[i].ID); !errors.Is(err, dispatch.ErrUnavailable) {
					t.Errorf("got %v, want %v", err, dispatch.ErrUnavailable)
				}
			})
		}()
		db.waiting(t)
		for range 20 { // unrelated reads are answered although every connection for claims is waiting
			if _, err := db.Dispatch(t.Context(), other.ID); err != nil {
				t.Error(err)
			}
			if _, err := db.Driver(t.Context(), drivers[0].ID); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-done:
			t.Error("the reads waited for the claims")
		default:
		}
		testkit.Await(t, "the claims' end", done)
		if took := time.Since(start); took > hang {
			t.Errorf("the claims took %v", took)
		}
		release()
		db.mustHold(t, 0, dispatch.EventAccepted, 0)
		db.mustAccept(t, d.ID, drivers[0].ID)
	})
}

func TestUpdateOfALockedRow(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		db.hold(t, d.ID)
		start := time.Now()
		_, err := db.Update(t.Context(), d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) {
			t.Error("the change was asked")
			return nil, nil
		})
		if took := time.Since(start); !errors.Is(err, dispatch.ErrUnavailable) || took > hang {
			t.Errorf("got %v after %v, want %v", err, took, dispatch.ErrUnavailable)
		}
	})
}

// A row that the claim was decided on changes while its UPDATE waits for the row lock.
func TestRowChangesWhileTheUpdateWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
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
	eachServer(t, func(t *testing.T, db *database) {
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
	eachServer(t, func(t *testing.T, db *database) {
		s, proxy := db.proxied(t)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		claim := rule(0)
		hold := proxy.Hold("COMMIT")
		ended := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := s.Claim(t.Context(), d.ID, v.ID, claim)
			ended <- err
		}()
		testkit.Await(t, "the COMMIT", hold.Reached())
		proxy.Refuse(true)
		err := <-ended
		if took := time.Since(start); !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) || took > hang {
			t.Errorf("got %v after %v, want %v", err, took, dispatch.ErrUnknown)
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
	s := open(t, near.URL(db.url))
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
	eachServer(t, func(t *testing.T, db *database) {
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
	eachServer(t, func(t *testing.T, db *database) {
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		hold, ended := db.severed(t, d.ID, v.ID)
		select {
		case err := <-ended:
			if !errors.Is(err, dispatch.ErrUnknown) || errors.Is(err, dispatch.ErrUnavailable) {
				t.Errorf("got %v, want %v: the COMMIT may yet arrive", err, dispatch.ErrUnknown)
			}
		case <-time.After(hang):
			t.Fatal("Claim hangs")
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
	eachServer(t, func(t *testing.T, db *database) {
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
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the COMMIT never arrived, and Claim says that it did")
			}
		case <-time.After(hang):
			t.Errorf("Claim goes on %v after its context ended", hang)
			proxy.CutAll()
			<-ended
		}
	})
}

func TestTheCommitNeverArrives(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
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
	eachServer(t, func(t *testing.T, db *database) {
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
	eachServer(t, func(t *testing.T, db *database) {
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
