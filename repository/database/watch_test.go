package database_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/migrations"
	"firsttap/repository"
	. "firsttap/repository/repositorytest"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
)

// Watch is called for each statement of a claim, for its end, and for nothing that was not sent.
func TestWatch(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		w, ctx := &Watched{}, context.WithValue(t.Context(), WatchKey{}, true)
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		db = db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: testkit.Patience, Observer: w.Watch}))
		if len(db.Pools()) < 2 {
			t.Errorf("%d pools have a name", len(db.Pools()))
		}
		Must(t, ErrorOf(db.Accept(ctx, d.ID, v.ID)))
		want := []string{"select", "begin", "update", "insert", "insert", "insert", "commit"}
		if db.Dialect == migrations.MySQL {
			want = []string{"select", "call"}
		}
		for i := range want {
			want[i] = "decide " + want[i]
		}
		testkit.Equal(t, "the statements of a claim", want, w.Take())
		no := errors.New("no")
		_, err := db.Update(ctx, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { return nil, no })
		if got := w.Take(); !errors.Is(err, no) || got[len(got)-1] != "decide rollback" {
			t.Errorf("%v: an update without a change runs %v", err, got)
		}
		gone, leave := context.WithCancel(ctx)
		leave()
		if _, err := db.Driver(gone, v.ID); err == nil || w.Failed == 0 {
			t.Errorf("%v: Watch is not called", err)
		}
		if w.Open != 0 || len(w.Wrong) > 0 {
			t.Errorf("%d are not over; %q", w.Open, w.Wrong)
		}
	})
}

// slow is a statement that takes a minute, and one that is marked.
func slow(mark string) string {
	return "SELECT /* " + mark + " */ SUM(SLEEP(30)) FROM (SELECT 1 UNION ALL SELECT 2) x"
}

// works is whether the server works on it.
func works(db *Bench, t *testing.T, mark string) bool {
	t.Helper()
	return slices.ContainsFunc(servertest.Sessions(t, db.Raw), func(s servertest.Session) bool { return strings.Contains(s.Statement, "/* "+mark+" */") })
}

// A read that takes too long ends on the server, also after its client is gone.
func TestReadsEndOnTheServer(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		t.Parallel()
		db = db.Impatient(t)
		ctx, giveUp := context.WithCancel(t.Context())
		given := make(chan struct{})
		go func() {
			defer close(given)
			if err := db.Serve.With(ctx).Exec(slow("given-up")).Error; err == nil {
				t.Error("it was given up")
			}
		}()
		testkit.Retry(t, func() error {
			if !works(db, t, "given-up") {
				return errors.New("it has not begun")
			}
			return nil
		})
		giveUp()
		<-given

		const ended, endedMariaDB = 3024, 1969
		var refused *driver.MySQLError
		testkit.Retry(t, func() error { // the client gives up a second later, and may be first on a busy machine
			var interrupted int // TiDB counts the SLEEPs that it interrupts, and returns no error for them
			err := db.Serve.With(t.Context()).Raw(slow("waited-for")).Scan(&interrupted).Error
			if interrupted == 0 && !errors.As(err, &refused) {
				return errors.Join(errors.New("the server has not ended the waiting call"), err)
			}
			if interrupted == 0 && refused.Number != ended && refused.Number != endedMariaDB {
				t.Errorf("the waiting call got %v", err)
			}
			return nil
		})
		for _, mark := range []string{"given-up", "waited-for"} {
			testkit.Retry(t, func() error {
				if works(db, t, mark) {
					return fmt.Errorf("the server still runs the statement that was %s", mark)
				}
				return nil
			})
		}
	})
}

// On a MariaDB the deadline would end writes and their COMMIT too: they have none.
func TestWritesHaveNoDeadlineOnTheServer(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		limit := "@@SESSION.max_execution_time / 1000"
		if err := db.Raw.QueryRow("SELECT @@max_statement_time").Scan(new(float64)); err == nil {
			limit = "@@SESSION.max_statement_time"
		}
		for name, pool := range map[string]database.Tx{"decide": db.Decide.With(t.Context()), "serve": db.Serve.With(t.Context()), "work": db.Work.With(t.Context())} {
			want := 0.0
			if name == "serve" {
				want = (2*testkit.Patience - database.ServerGivesUpBefore).Seconds() // the client waits for twice its patience
			}
			var got float64
			if err := pool.Raw("SELECT " + limit).Row().Scan(&got); err != nil || got != want {
				t.Errorf("%s: %g s, %v; want %g", name, got, err, want)
			}
		}
	})
}
