package database_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// TestWhatAReplicaTakesOff prints the table of docs/database.md: what a read of the backoffice costs the primary, with a replica and
// without. With one it is a statement that reads one row, whatever is listed. Both answers are the same.
func TestWhatAReplicaTakesOff(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		is := r.Size(t)
		r.Exec(t, "INSERT INTO dispatch_words (word, dispatch_id) SELECT 'x', id FROM dispatches ORDER BY id") // of their address
		r.Follow()
		root := Direct(t, rootAt(t, r.Bench.URL))
		cost := func(read func() (any, error)) (answer any, statements, rows int) {
			t.Helper()
			answer, err := read() // the connections are open, and the dictionary is read
			Must(t, err)
			statements, rows = -1, -1
			for range 3 { // the server has work of its own
				before := countersOf(t, root)
				none := countersOf(t, root)
				_, err := read()
				Must(t, err)
				after := countersOf(t, root)
				if n := after.rows - none.rows - (none.rows - before.rows); statements < 0 || n < rows {
					statements, rows = after.selects-none.selects-(none.selects-before.selects), n
				}
			}
			return answer, statements, rows
		}
		without, with := r.Bench, r.lister(t, testkit.Patience, false)
		page, terms := dispatch.Page{Limit: 50}, SomeTerms(r.Now(t))
		for _, of := range []struct {
			name string
			read func(context.Context, *repository.Store) (any, error)
		}{
			{"a page of 50 dispatches", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Dispatches.List(ctx, dispatch.Query{Page: page}))
			}},
			{"open ones of a region", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Dispatches.List(ctx, dispatch.Query{Region: "seoul", Status: dispatch.Pending, Page: page}))
			}},
			{"a search for a word that no dispatch has", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Dispatches.List(ctx, dispatch.Query{Text: "nowhere", Page: page}))
			}},
			{"a page of 50 drivers on duty", func(ctx context.Context, s *repository.Store) (any, error) {
				on := true
				return pageOf(s.Drivers.Drivers(ctx, dispatch.DriverQuery{Region: "seoul", OnDuty: &on, Page: page}))
			}},
			{"the board", func(ctx context.Context, s *repository.Store) (any, error) {
				b, err := s.Board.Board(ctx, "")
				return b.Regions[0].OnDuty, err
			}},
			{"a driver's signals", func(ctx context.Context, s *repository.Store) (any, error) {
				taps, err := s.Board.TapStatistics(ctx, is.Driver.ID)
				taps.Since = time.Time{}
				return taps, err
			}},
			{"a preview", func(ctx context.Context, s *repository.Store) (any, error) {
				p, _, err := s.Drivers.Preview(ctx, terms)
				return p, err
			}},
			{"50 taps on a dispatch", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Offers.Attempts(ctx, is.Busy, 0, page))
			}},
			{"50 offers of a dispatch", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Offers.Offers(ctx, is.Busy, 0, page))
			}},
			{"50 pushes of a dispatch", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Notifications.Notifications(ctx, is.Busy, page))
			}},
			{"the pushes by round", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOfAny(s.Offers.Funnel(ctx, is.Busy))
			}},
			{"the newest pushes", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Notifications.NotificationsBy(ctx, outbox.Pending, page))
			}},
			{"the events of a dispatch", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Journal.Events(ctx, is.Busy, page))
			}},
			{"the audit", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Journal.Audit(ctx, dispatch.AuditQuery{Page: page}))
			}},
			{"the supply of a day", func(ctx context.Context, s *repository.Store) (any, error) { return s.Board.Supply(ctx, "", 24) }},
			{"a job's runs", func(ctx context.Context, s *repository.Store) (any, error) {
				return pageOf(s.Runs.Runs(ctx, "supply", page))
			}},
		} {
			want, statements, rows := cost(func() (any, error) { return of.read(t.Context(), without.Store) })
			got, left, leftRows := cost(func() (any, error) { return of.read(t.Context(), with.Store) })
			testkit.Equal(t, of.name+": the answer", want, got)
			t.Logf("| %s | %d | %d | %d | %d |", of.name, statements, rows, left, leftRows)
			if left != 1 || leftRows > 1 || statements < 2 {
				t.Errorf("%s costs the primary %d statements and %d rows, without a replica %d statements", of.name, left, leftRows, statements)
			}
		}
		if use, _ := with.Replica(); use.ByPrimary != 0 {
			t.Errorf("%+v", use)
		}
	})
}

// counters are how many statements a server has executed, and how many rows it has read for them.
type counters struct{ selects, rows int }

func countersOf(t *testing.T, db *sql.DB) (c counters) {
	t.Helper()
	all, err := database.ShowValues(t.Context(), db, "SHOW GLOBAL STATUS WHERE Variable_name = 'Com_select' OR Variable_name LIKE 'Handler\\_read\\_%'")
	Must(t, err)
	for name, value := range all {
		n, err := strconv.Atoi(value)
		Must(t, err)
		if name == "Com_select" {
			c.selects = n
		} else {
			c.rows += n
		}
	}
	return c
}

func pageOf[T any](items []T, _ string, err error) (any, error) { return items, err }

func pageOfAny[T any](items []T, _ int, err error) (any, error) { return items, err }
