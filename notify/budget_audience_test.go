package notify_test

import (
	"fmt"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// The cost model of docs/scaling.md: up to 64 phones, each phone costs two rows when the dispatch is offered and three when it is won, of
// which one is the tap, a few allocations, and neither a statement nor a commit nor a command of Redis. Not parallel, as it counts the
// allocations of the process.
func TestBudgetByAudience(t *testing.T) {
	for _, phones := range []int{5, 60} {
		onDatabases(t, phones, func(t *testing.T, o *office) {
			budget := map[string]costs{}
			for step, c := range budgets[o.kind] {
				if c.Allocs = 2000; step == "offered" || step == "won" {
					c.Rows += 2 * (phones - 30)
					c.Allocs += 270 * phones
				}
				if step == "won" {
					c.Rows += phones - 30 // a tap of each driver
				}
				budget[step] = c
			}
			l := newLife(t, o)
			l.live() // fills the caches
			l.mustCost(budget)
		})
	}
}

// A larger audience is told in parts: 128 drivers, and then 1,000 at a time. It costs three rows
// for each phone, as a push that waits is leased by an update of its own, and statements for each part and each lease of 256.
func TestBudgetOfALargeAudience(t *testing.T) {
	for _, phones := range []int{200, 600} {
		t.Run(fmt.Sprint(phones), func(t *testing.T) {
			if phones > 200 {
				testkit.OnlyInAll(t)
			}
			onDatabases(t, phones, func(t *testing.T, o *office) {
				if o.kind == servertest.SQLite {
					return // has the same statements
				}
				l := newLife(t, o)
				l.live()
				var c costs
				fits := false
				for lives := 0; lives < 5 && !fits; lives++ { // while the machine stands still, pushes are leased again
					c = l.live()["offered"]
					fits = c.Statements <= 60 && c.Commits <= 8 && c.Rows <= 3*phones && c.Allocs <= 320*phones
				}
				t.Logf("%d phones, offered: %+v", phones, c)
				if !fits {
					t.Errorf("%d phones cost %+v", phones, c)
				}
			})
		})
	}
}
