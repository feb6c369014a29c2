package repository

import (
	"maps"
	"math"
	"testing"
	"time"

	"firsttap/dispatch"
)

// A tap is stored under the round that it names. One that names none, or one that there is not yet, was on the current one;
// whatever an app makes up, the others of the batch are kept.
func TestTheRoundOfATap(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, first, second := db.drivers(t, 1)[0], db.add(t, nil), db.add(t, nil)
		second = db.withdraw(t, second, v.ID)
		if second.Round != 2 {
			t.Fatalf("%+v", second)
		}
		var taps []dispatch.Attempt
		want := map[dispatch.AttemptID]int{}
		for _, c := range []struct {
			of            dispatch.ID
			named, booked int // 0: not at all
		}{
			{first.ID, 1, 1}, {first.ID, 0, 1}, {first.ID, 2, 1}, {first.ID, math.MaxInt32, 1}, {first.ID, math.MaxInt32 + 1, 1},
			{second.ID, 1, 1}, {second.ID, 2, 2}, {second.ID, 0, 2}, {second.ID, 3, 2}, {second.ID, math.MaxInt32, 2},
			{dispatch.NewID(time.Now()), 1, 0}, {first.ID, 1, 1},
		} {
			a := tap(c.of, v.ID, dispatch.AttemptStale, first.CreatedAt)
			a.Round = c.named
			if taps = append(taps, a); c.booked != 0 {
				want[a.ID] = c.booked
			}
		}
		must(t, db.AddAttempts(t.Context(), taps))
		var rows []attemptRow
		must(t, db.general.Find(&rows).Error)
		got := map[dispatch.AttemptID]int{}
		for _, row := range rows {
			got[row.ID] = row.Round
		}
		if !maps.Equal(got, want) {
			t.Errorf("booked on %v, want %v", got, want)
		}
	})
}
