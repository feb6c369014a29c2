package board_test

import (
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
	"firsttap/testkit"
)

// The board counts open dispatches by an index, without reading them, and reads no more of them than it says are unseen; where drivers have
// seen all, each one and its first view.
func TestPlansOfTheBoard(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		open := testkit.Scale(2500, 10_000)
		unseenDispatches(db, t, open)
		const seen = "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) SELECT "
		for what, c := range map[string]struct{ unseen, most int }{
			"nobody has seen them": {dispatch.MaxUnseen, 2*open + 3*dispatch.MaxUnseen}, "all are seen": {0, 4*open + dispatch.MaxUnseen},
		} {
			db.Exec(t, "DELETE FROM offers")
			db.Exec(t, seen+"CONCAT('dsp_', n), 1, 'drv_x', 1 FROM "+Numbers(4)+" ORDER BY n") // of dispatches that have ended
			if c.unseen == 0 {
				db.Exec(t, seen+"id, 1, 'drv_x', 1 FROM dispatches ORDER BY id")
			}
			db.Exec(t, "ANALYZE TABLE dispatches, offers, events")
			for _, region := range []string{"", "seoul"} {
				cost, counted := 0, 0
				for _, s := range Statements(t, []database.Tx{db.Serve.With(t.Context()), db.Serve.With(t.Context())}, func() {
					b, err := db.Board.Board(t.Context(), region)
					if err != nil || b.Unseen != c.unseen || b.Counts[dispatch.Pending] != open {
						t.Errorf("%+v, %v", b, err)
					}
				}) {
					if !strings.Contains(s, " FROM ") {
						continue // the clock
					}
					cost += db.RowsRead(t, s)
					for _, p := range db.Explain(t, s) {
						if p["key"] == "ix_dispatches_open" && strings.Contains(strings.ReplaceAll(p["extra"], "Using index condition", ""), "Using index") {
							counted++
						}
						if p["table"] == "d" && strings.Contains(p["extra"], "filesort") {
							t.Errorf("%s\n%v", s, p)
						}
					}
				}
				if counted != 1 || cost > c.most {
					t.Errorf("%s, region %q: %d rows read, want %d at most; an index alone counts the open ones %d times", what, region, cost, c.most, counted)
				}
				t.Logf("%s, region %q: %d rows read", what, region, cost)
			}
		}
	})
}
