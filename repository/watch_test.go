package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

type watchKey struct{}

// watched keeps the statements that a store reports.
type watched struct {
	mu     sync.Mutex
	said   []string // pool and operation
	wrong  []string
	failed int
	open   int
}

func (w *watched) watch(ctx context.Context, s Statement) (context.Context, func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	w.said = append(w.said, s.Pool+" "+s.Operation)
	if ctx.Value(watchKey{}) == nil || strings.Contains(s.Query, "drv_") || strings.Contains(s.Query, "dsp_") {
		w.wrong = append(w.wrong, s.Query)
	}
	return ctx, func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
		if err != nil {
			w.failed++
		}
	}
}

func (w *watched) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// Watch is called for each statement of a claim, for its end, and for nothing that was not sent.
func TestWatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		w, ctx := &watched{}, context.WithValue(t.Context(), watchKey{}, true)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		db = db.by(openWith(t, db.url, Options{Log: quiet, Patience: testkit.Patience, Observer: w.watch}))
		if len(db.Pools()) < 2 {
			t.Errorf("%d pools have a name", len(db.Pools()))
		}
		must(t, errorOf(db.accept(ctx, d.ID, v.ID)))
		want := []string{"select", "begin", "update", "insert", "insert", "insert", "commit"}
		if db.procedure != nil {
			want = []string{"select", "call"}
		}
		for i := range want {
			want[i] = "decide " + want[i]
		}
		testkit.Equal(t, "the statements of a claim", want, w.take())
		no := errors.New("no")
		_, err := db.Update(ctx, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { return nil, no })
		if got := w.take(); !errors.Is(err, no) || got[len(got)-1] != "decide rollback" {
			t.Errorf("%v: an update without a change runs %v", err, got)
		}
		gone, leave := context.WithCancel(ctx)
		leave()
		if _, err := db.Driver(gone, v.ID); err == nil || w.failed == 0 {
			t.Errorf("%v: Watch is not called", err)
		}
		if w.open != 0 || len(w.wrong) > 0 {
			t.Errorf("%d are not over; %q", w.open, w.wrong)
		}
	})
}

// slow is a statement that takes a minute, and one that is marked.
func slow(mark string) string {
	return "SELECT /* " + mark + " */ SUM(SLEEP(30)) FROM (SELECT 1 UNION ALL SELECT 2) x"
}

// works is whether the server works on it.
func (db *database) works(t *testing.T, mark string) bool {
	t.Helper()
	return slices.ContainsFunc(servertest.Sessions(t, db.raw), func(s servertest.Session) bool { return strings.Contains(s.Statement, "/* "+mark+" */") })
}

// A read that takes too long ends on the server, also after its client is gone.
func TestReadsEndOnTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		t.Parallel()
		db = db.impatient(t)
		ctx, giveUp := context.WithCancel(t.Context())
		given := make(chan struct{})
		go func() {
			defer close(given)
			if err := db.serve.WithContext(ctx).Exec(slow("given-up")).Error; err == nil {
				t.Error("it was given up")
			}
		}()
		testkit.Retry(t, func() error {
			if !db.works(t, "given-up") {
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
			err := db.serve.WithContext(t.Context()).Raw(slow("waited-for")).Scan(&interrupted).Error
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
				if db.works(t, mark) {
					return fmt.Errorf("the server still runs the statement that was %s", mark)
				}
				return nil
			})
		}
	})
}

// On a MariaDB the deadline would end writes and their COMMIT too: they have none.
func TestWritesHaveNoDeadlineOnTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		limit := "@@SESSION.max_execution_time / 1000"
		if err := db.raw.QueryRow("SELECT @@max_statement_time").Scan(new(float64)); err == nil {
			limit = "@@SESSION.max_statement_time"
		}
		for name, pool := range map[string]*gorm.DB{"decide": db.decide, "serve": db.serve, "work": db.work} {
			want := 0.0
			if name == "serve" {
				want = (2*testkit.Patience - serverGivesUpBefore).Seconds() // the client waits for twice its patience
			}
			var got float64
			if err := pool.Raw("SELECT " + limit).Row().Scan(&got); err != nil || got != want {
				t.Errorf("%s: %g s, %v; want %g", name, got, err, want)
			}
		}
	})
}
