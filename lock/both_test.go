package lock

import (
	"testing"
	"time"
)

// Instances that know only the one, both, or only the other exclude each other, and who is refused leaves nothing behind.
func TestBothStandBetween(t *testing.T) {
	first, second := NewMemory(), NewMemory()
	both := NewBoth(first, second)
	for _, holder := range []Strategy{first, both, second} {
		g := take(t, holder, "a", "holder", time.Minute)
		mustBe(t, "both", acquireErr(t, both, "a", "rival", time.Minute), ErrHeld)
		if holder == both {
			for _, one := range []Strategy{first, second} {
				mustBe(t, "one", acquireErr(t, one, "a", "rival", time.Minute), ErrHeld)
			}
		}
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), nil)
		mustBe(t, "release", g.Release(t.Context(), 0), nil)
		for _, one := range []*Memory{first, second} {
			if list, _ := one.List(t.Context()); len(list) > 0 {
				t.Errorf("left behind: %v", list)
			}
		}
	}
}

// A lease that one of the two has lost is lost.
func TestBothLoseWithEither(t *testing.T) {
	for i := range 2 {
		two := []*Memory{NewMemory(), NewMemory()}
		g := take(t, NewBoth(two[0], two[1]), "a", "holder", time.Minute)
		if _, err := two[i].Break(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), ErrExpired)
		rival := take(t, two[i], "a", "rival", time.Minute)
		mustBe(t, "extend", g.Extend(t.Context(), time.Minute), ErrStolen)
		mustBe(t, "release", g.Release(t.Context(), 0), ErrStolen)
		mustBe(t, "the rival's release", rival.Release(t.Context(), 0), nil)
	}
}
