package board_test

import (
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// The board counts open dispatches by an index, without reading them, and reads no more of them than it says are unseen; where drivers have
// seen all, each one and its first view.
func TestPlansOfTheBoard(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		open := testkit.Scale(2500, 10_000)
		unseenDispatches(db, t, open)
		const seen = "INSERT INTO offers (dispatch_id, round, driver_id, seen_at) SELECT "
		mustCount := func(what string, unseen, most int) {
			t.Helper()
			db.Exec(t, "ANALYZE TABLE dispatches, offers, events")
			all := map[string]Reading{}
			for _, region := range []string{"", "seoul"} {
				all[what+", region "+region] = Reading{Do: func() error {
					b, err := db.Board.Board(t.Context(), region)
					testkit.Equal(t, what+": unseen and open", [2]int{unseen, open}, [2]int{b.Unseen, b.Counts[dispatch.Pending]})
					return err
				}, Most: most}
			}
			db.MustReadFew(t, all)
		}
		db.Exec(t, seen+"CONCAT('dsp_', n), 1, 'drv_x', 1 FROM "+Numbers(4)+" ORDER BY n") // of dispatches that have ended
		mustCount("nobody has seen them", dispatch.MaxUnseen, 2*open+3*dispatch.MaxUnseen)
		db.Exec(t, seen+"id, 1, 'drv_x', 1 FROM dispatches ORDER BY id")
		mustCount("all are seen", 0, 4*open+dispatch.MaxUnseen)
	})
}
