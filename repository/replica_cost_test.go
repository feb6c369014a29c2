package repository

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/servertest"
	"firsttap/testkit"
)

// TestWhatAReplicaTakesOff prints the table of docs/operations.md: what a read of the backoffice costs the primary, with a replica and
// without. With one it is a statement that reads one row, whatever is listed. Both answers are the same.
func TestWhatAReplicaTakesOff(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		is := r.size(t)
		r.exec(t, "INSERT INTO dispatch_words (word, dispatch_id) SELECT 'x', id FROM dispatches ORDER BY id") // of their address
		r.Follow()
		root := direct(t, rootAt(t, r.url))
		cost := func(read func() (any, error)) (answer any, statements, rows int) {
			t.Helper()
			answer, err := read() // the connections are open, and the dictionary is read
			must(t, err)
			statements, rows = -1, -1
			for range 3 { // the server has work of its own
				before := countersOf(t, root)
				none := countersOf(t, root)
				_, err := read()
				must(t, err)
				after := countersOf(t, root)
				if n := after.rows - none.rows - (none.rows - before.rows); statements < 0 || n < rows {
					statements, rows = after.selects-none.selects-(none.selects-before.selects), n
				}
			}
			return answer, statements, rows
		}
		without, with := r.database, r.lister(t, testkit.Patience, false)
		page, terms := dispatch.Page{Limit: 50}, someTerms(r.now(t))
		for _, of := range []struct {
			name string
			read func(context.Context, *Store) (any, error)
		}{
			{"a page of 50 dispatches", func(ctx context.Context, s *Store) (any, error) {
				return pageOf(s.List(ctx, dispatch.Query{Page: page}))
			}},
			{"open ones of a region", func(ctx context.Context, s *Store) (any, error) {
				return pageOf(s.List(ctx, dispatch.Query{Region: "seoul", Status: dispatch.Pending, Page: page}))
			}},
			{"a search for a word that no dispatch has", func(ctx context.Context, s *Store) (any, error) {
				return pageOf(s.List(ctx, dispatch.Query{Text: "nowhere", Page: page}))
			}},
			{"a page of 50 drivers on duty", func(ctx context.Context, s *Store) (any, error) {
				on := true
				return pageOf(s.Drivers(ctx, dispatch.DriverQuery{Region: "seoul", OnDuty: &on, Page: page}))
			}},
			{"the board", func(ctx context.Context, s *Store) (any, error) {
				b, err := s.Board(ctx, "")
				return b.Regions[0].OnDuty, err
			}},
			{"a driver's signals", func(ctx context.Context, s *Store) (any, error) {
				taps, err := s.TapStatistics(ctx, is.driver.ID)
				taps.Since = time.Time{}
				return taps, err
			}},
			{"a preview", func(ctx context.Context, s *Store) (any, error) {
				p, _, err := s.Preview(ctx, terms)
				return p, err
			}},
			{"50 taps on a dispatch", func(ctx context.Context, s *Store) (any, error) { return pageOf(s.Attempts(ctx, is.busy, 0, page)) }},
			{"50 offers of a dispatch", func(ctx context.Context, s *Store) (any, error) { return pageOf(s.Offers(ctx, is.busy, 0, page)) }},
			{"50 pushes of a dispatch", func(ctx context.Context, s *Store) (any, error) { return pageOf(s.Notifications(ctx, is.busy, page)) }},
			{"the pushes by round", func(ctx context.Context, s *Store) (any, error) { return pageOfAny(s.Funnel(ctx, is.busy)) }},
			{"the newest pushes", func(ctx context.Context, s *Store) (any, error) {
				return pageOf(s.NotificationsBy(ctx, outbox.Pending, page))
			}},
			{"the events of a dispatch", func(ctx context.Context, s *Store) (any, error) { return pageOf(s.Events(ctx, is.busy, page)) }},
			{"the audit", func(ctx context.Context, s *Store) (any, error) {
				return pageOf(s.Audit(ctx, dispatch.AuditQuery{Page: page}))
			}},
			{"the supply of a day", func(ctx context.Context, s *Store) (any, error) { return s.Supply(ctx, "", 24) }},
			{"a job's runs", func(ctx context.Context, s *Store) (any, error) { return pageOf(s.Runs(ctx, "supply", page)) }},
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
	all, err := showValues(t.Context(), db, "SHOW GLOBAL STATUS WHERE Variable_name = 'Com_select' OR Variable_name LIKE 'Handler\\_read\\_%'")
	must(t, err)
	for name, value := range all {
		n, err := strconv.Atoi(value)
		must(t, err)
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
