package systemtest

import (
	"testing"
	"time"

	"firsttap/app"
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

func TestExactlyOneWinner(t *testing.T) {
	onServers(t, func(t *testing.T, url string) {
		for _, gate := range []string{"with redis", "without redis"} {
			t.Run(gate, func(t *testing.T) {
				settings := []string{"FIRSTTAP_DATABASE_URL=" + url}
				many, few := 200, 20
				if gate == "with redis" {
					settings = append(settings, "FIRSTTAP_REDIS_URL="+servertest.RedisURL(t))
				} else {
					many, few = 50, 5
				}
				instances := []*Instance{Start(t, settings...), Start(t, settings...)}
				db := OpenDatabase(t, url)
				drivers := MakeDrivers(t, instances[0], 200)
				for range many {
					raceRound(t, db, instances, drivers[:30])
				}
				for range few {
					raceRound(t, db, instances, drivers)
				}
				t.Logf("%d rounds of 30 and %d of 200 drivers over two instances: one winner each, stored as answered", many, few)
			})
		}
	})
}

func TestSameDriverTapsTwice(t *testing.T) {
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.RedisURL(t)}
		instances := []*Instance{Start(t, settings...), Start(t, settings...)}
		db := OpenDatabase(t, url)
		driver := MakeDrivers(t, instances[0], 1)[0]
		for round := range 40 {
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
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.RedisURL(t)}
		instances := []*Instance{Start(t, settings...), Start(t, settings...)}
		drivers := MakeDrivers(t, instances[0], 40)
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
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.RedisURL(t)}
		one, two := Start(t, settings...), Start(t, settings...)
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, one, 22)
		second, third := drivers[20], drivers[21]
		for _, first := range drivers[:20] { // each withdraws once: withdrawals are limited
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

// The race command is itself a test: it fails unless exactly one driver wins.
func TestRaceCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	var out testkit.LogBuffer
	// At an address of its own, as the default one may be in use.
	settings := func(name string) (string, bool) {
		if name == "FIRSTTAP_ADDR" {
			return "127.0.0.1:1", true
		}
		return "", false
	}
	if err := app.Run(t.Context(), []string{"race", "--drivers", "12"}, settings, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := app.Run(t.Context(), []string{"race", "--url", "http://127.0.0.1:1"}, settings, &out); err == nil {
		t.Error("a race at an unused address should fail")
	}
}
