package systemtest

import (
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// raceRound makes the drivers accept one dispatch at the instances, and checks that one wins and the database agrees.
func raceRound(t *testing.T, db *Database, instances []*Instance, drivers []Driver) {
	t.Helper()
	id := MakeDispatch(t, instances[0])
	answers := Together(len(drivers), func(k int) Response { return Accept(instances[k%len(instances)], id, drivers[k], 1) })
	oneWinner(t, db, id, 1, drivers, answers)
}

func oneWinner(t *testing.T, db *Database, id string, round int, drivers []Driver, answers []Response) {
	t.Helper()
	winner := -1
	for k, a := range answers {
		switch {
		case a.Won() && winner < 0:
			winner = k
		case a.Won():
			t.Fatalf("two winners: %s and %s", answers[winner], a)
		case a.status != 409 || a.Code != "ALREADY_TAKEN" || a.Final == nil:
			t.Fatalf("a loser got %s", a)
		}
	}
	if winner < 0 {
		t.Fatalf("no winner among %v", answers)
	}
	db.mustBeWonBy(id, round, drivers[winner].ID, answers[winner].Claim.ID)
}

// Of the drivers who tap at the same time, one wins, at whichever instance, with Redis and without it. These races keep
// all processors busy, so no other test runs beside them.
func TestExactlyOneWinner(t *testing.T) {
	onEveryServer(t, func(t *testing.T, url string) {
		for _, c := range []struct {
			gate      string
			settings  []string
			many, few int // races of 30 drivers and of 200
		}{
			{"with redis", []string{"FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()}, testkit.Scale(20, 200), testkit.Scale(2, 20)},
			{"without redis", nil, testkit.Scale(5, 50), testkit.Scale(1, 5)},
		} {
			t.Run(c.gate, func(t *testing.T) {
				settings := append([]string{"FIRSTTAP_DATABASE_URL=" + url}, c.settings...)
				instances := []*Instance{Start(t, settings...), Start(t, settings...)}
				db := OpenDatabase(t, url)
				drivers := MakeDrivers(t, instances[0], 200)
				for range c.many {
					raceRound(t, db, instances, drivers[:30])
				}
				for range c.few {
					raceRound(t, db, instances, drivers)
				}
				t.Logf("%d races of 30 drivers and %d of 200, at two instances: each has one winner, whose claim is in the database", c.many, c.few)
			})
		}
	})
}

func TestSameDriverTapsTwice(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()}
		instances := []*Instance{Start(t, settings...), Start(t, settings...)}
		db := OpenDatabase(t, url)
		driver := MakeDrivers(t, instances[0], 1)[0]
		for round := range testkit.Scale(10, 40) {
			id := MakeDispatch(t, instances[0])
			// At one instance in even rounds, at both in odd ones.
			answers := Together(4, func(k int) Response { return Accept(instances[k*(round%2)%2], id, driver, 1) })
			fresh := 0
			for _, a := range answers {
				if !a.Won() || a.Claim.ID != answers[0].Claim.ID {
					t.Fatalf("the driver's own tap was answered with %s", a)
				}
				if !*a.Replayed {
					fresh++
				}
			}
			if fresh > 1 {
				t.Fatalf("%d of four taps made the claim", fresh)
			}
			db.mustBeWonBy(id, 1, driver.ID, answers[0].Claim.ID)
		}
	})
}

func TestOverlappingWorkIsClaimedOnce(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()}
		instances := []*Instance{Start(t, settings...), Start(t, settings...)}
		drivers := MakeDrivers(t, instances[0], testkit.Scale(10, 40))
		starts := time.Now().Add(time.Hour)
		for _, d := range drivers {
			ids := []string{MakeDispatchWith(t, instances[0], DispatchOptions{starts: starts}), MakeDispatchWith(t, instances[0], DispatchOptions{starts: starts.Add(30 * time.Minute)})}
			answers := Together(2, func(k int) Response { return Accept(instances[k], ids[k], d, 1) })
			won, busy := 0, 0
			for _, a := range answers {
				if a.Won() {
					won++
				} else if a.Code == "DRIVER_BUSY" {
					busy++
				}
			}
			if won != 1 || busy != 1 {
				t.Fatalf("one of two overlapping dispatches should be won, the other refused: %v", answers)
			}
		}
	})
}

// A withdrawn claim must neither be replayed nor win the next round, whatever is cached.
func TestRounds(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()}
		one, two := Start(t, settings...), Start(t, settings...)
		db := OpenDatabase(t, url)
		rounds := testkit.Scale(5, 20)
		drivers := MakeDrivers(t, one, rounds+2)
		second, third := drivers[rounds], drivers[rounds+1]
		for _, first := range drivers[:rounds] { // each withdraws once: withdrawals are limited
			id := MakeDispatch(t, one)
			if a := Accept(one, id, first, 1); !a.Won() {
				t.Fatal(a)
			}
			// The other instance caches that round 1 is taken.
			for range 2 {
				if a := Accept(two, id, second, 1); a.Code != "ALREADY_TAKEN" || !*a.Final {
					t.Fatal(a)
				}
			}
			a := send("POST", one.URL+"/v1/dispatches/"+id+"/withdraw", first.Token, `{"reason_code":"BREAKDOWN"}`)
			if a.status != 200 || a.Round != 2 || a.Status != "PENDING" {
				t.Fatal(a)
			}
			for _, round := range []int{0, 1} {
				if a := Accept(one, id, first, round); a.Code != "OFFER_STALE" {
					t.Fatalf("the late retry of a claim given back, round %d: %s", round, a)
				}
			}
			a = Accept(two, id, third, 2)
			if !a.Won() {
				t.Fatalf("round 2 on the instance that knows round 1 to be taken: %s", a)
			}
			db.mustBeWonBy(id, 2, third.ID, a.Claim.ID)
			if n := db.Count("claims WHERE dispatch_id=? AND round=1 AND outcome='WITHDRAWN' AND ended_at IS NOT NULL", id); n != 1 {
				t.Fatal("the claim given back is not in the database")
			}
		}
	})
}
