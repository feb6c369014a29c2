package dispatch_test

import (
	"testing"

	. "firsttap/dispatch"
)

func TestLaneOf(t *testing.T) {
	for _, e := range allEvents {
		for _, telling := range e.Tellings() {
			want := map[Audience]Lane{ToClaimant: LaneOwn, ToEligible: LaneOffer, ToTold: LaneOver}[telling.To]
			if got := LaneOf(telling.Type, telling.Silent); got != want {
				t.Errorf("%+v: lane %d, want %d", telling, got, want)
			}
		}
	}
}

// Whatever waits beside it, each lane has its share; nobody's place is lost to a lane that is empty.
func TestLaneTurns(t *testing.T) {
	shares := map[Lane]int{LaneOwn: 4, LaneOffer: 3, LaneAgain: 2, LaneOver: 1}
	for mask := range 1 << Lanes {
		var waiting [Lanes]bool
		all := 0
		for l := range waiting {
			if waiting[l] = mask&(1<<l) != 0; waiting[l] {
				all += shares[Lane(l)]
			}
		}
		var turns LaneTurns
		var got [Lanes]int
		for range 7 * all {
			l, ok := turns.Next(waiting)
			if !ok {
				t.Fatalf("%v: nobody's turn", waiting)
			}
			got[l]++
		}
		for l, n := range got {
			if waiting[l] && n != 7*shares[Lane(l)] || !waiting[l] && n != 0 {
				t.Errorf("%v: lane %d had %d of %d turns", waiting, l, n, 7*all)
			}
		}
		if _, ok := turns.Next([Lanes]bool{}); ok {
			t.Error("a turn where nobody waits")
		}
	}
}
