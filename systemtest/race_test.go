package systemtest

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// raceRound makes the drivers accept one dispatch at the instances, and checks that one wins and the database agrees.
func raceRound(t *testing.T, db *Database, instances []*Instance, drivers []Driver) (id string, winner Driver) {
	t.Helper()
	id = MakeDispatch(t, instances[0])
	return id, oneWinner(t, db, id, drivers, race(instances, id, drivers))
}

// race makes the drivers accept round 1 of the dispatch at the same time, at the instances in turn.
func race(instances []*Instance, id string, drivers []Driver) []Response {
	return Together(len(drivers), func(k int) Response { return Accept(instances[k%len(instances)], id, drivers[k], 1) })
}

// oneWinner checks that one driver has won round 1 and the others were refused, and that the database agrees.
func oneWinner(t *testing.T, db *Database, id string, drivers []Driver, answers []Response) Driver {
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
	db.mustBeWonBy(id, 1, drivers[winner].ID, answers[winner].Claim.ID)
	return drivers[winner]
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
			{"with redis", []string{ownRedis(t)}, testkit.Scale(20, 200), testkit.Scale(2, 20)},
			{"without redis", nil, testkit.Scale(5, 50), testkit.Scale(1, 5)},
		} {
			t.Run(c.gate, func(t *testing.T) {
				instances, db := startTwo(t, url, c.settings...)
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

// TestTwoInstances are one service to drivers.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, url string) {
		instances, db := startTwo(t, url, ownRedis(t))
		for name, test := range map[string]func(*testing.T, []*Instance, *Database){
			"Repeated": sameDriverTapsTwice, "Overlapping": overlappingWorkIsClaimedOnce, "Rounds": rounds, "Early": tooEarly,
		} {
			t.Run(name, func(t *testing.T) { test(t, instances, db) })
		}
	})
}

// A driver's repeated tap gets the same claim, at whichever instance.
func sameDriverTapsTwice(t *testing.T, instances []*Instance, db *Database) {
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
}

func overlappingWorkIsClaimedOnce(t *testing.T, instances []*Instance, _ *Database) {
	starts := time.Now().Add(time.Hour)
	for _, d := range MakeDrivers(t, instances[0], testkit.Scale(10, 40)) {
		ids := []string{
			MakeDispatchWith(t, instances[0], DispatchOptions{starts: starts}),
			MakeDispatchWith(t, instances[0], DispatchOptions{starts: starts.Add(30 * time.Minute)}),
		}
		answers := Together(2, func(k int) Response { return Accept(instances[k], ids[k], d, 1) })
		won := slices.IndexFunc(answers, Response.Won)
		if won < 0 || answers[1-won].Code != "DRIVER_BUSY" {
			t.Fatalf("one of two overlapping dispatches should be won, the other refused: %v", answers)
		}
	}
}

// A withdrawn claim must neither be replayed nor win the next round, whatever is cached.
func rounds(t *testing.T, instances []*Instance, db *Database) {
	one, two := instances[0], instances[1]
	n := testkit.Scale(5, 20)
	drivers := MakeDrivers(t, one, n+2)
	second, third := drivers[n], drivers[n+1]
	for _, first := range drivers[:n] { // each withdraws once: withdrawals are limited
		id := MakeDispatch(t, one)
		mustWin(t, one, id, first, 1)
		for range 2 { // the other instance caches that round 1 is taken
			mustBeTaken(t, two, id, second)
		}
		if a := withdraw(one, id, first); a.status != 200 || a.Round != 2 || a.Status != "PENDING" {
			t.Fatal(a)
		}
		for _, round := range []int{0, 1} {
			if a := Accept(one, id, first, round); a.Code != "OFFER_STALE" {
				t.Fatalf("the late retry of a claim given back, round %d: %s", round, a)
			}
		}
		a := mustWin(t, two, id, third, 2) // on the instance that knows round 1 to be taken
		db.mustBeWonBy(id, 2, third.ID, a.Claim.ID)
		if n := db.Count("claims WHERE dispatch_id=? AND round=1 AND outcome='WITHDRAWN' AND ended_at IS NOT NULL", id); n != 1 {
			t.Fatal("the claim given back is not in the database")
		}
	}
}

// A dispatch that opens later is pushed and offered at once. A claim before the opening gets its time, and leaves nothing behind,
// here or in Redis, that could refuse a later claim.
func tooEarly(t *testing.T, instances []*Instance, db *Database) {
	one, two := instances[0], instances[1]
	drivers := makeDriversIn(t, one, "jeju", 20)
	phones(t, one, drivers)
	opens := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	id := MakeDispatchWith(t, one, DispatchOptions{Region: "jeju", opens: opens, starts: opens.Add(24 * time.Hour)})
	wire := opens.UTC().Format("2006-01-02T15:04:05.000Z")
	for k, d := range drivers {
		var early struct {
			OpensAt string `json:"opens_at"`
		}
		a := Accept(instances[k%2], id, d, k%3%2)
		if err := json.Unmarshal([]byte(a.body), &early); err != nil || a.status != 409 || a.Code != "NOT_OPEN_YET" || early.OpensAt != wire {
			t.Fatalf("before the opening: %s", a)
		}
	}
	testkit.Within(t, leaseTakeover, "every driver gets the push of the offer", func() bool {
		return db.Count("notifications WHERE dispatch_id = ? AND type = 'dispatch.opened' AND state = 1", id) == len(drivers)
	})
	type offered struct {
		ID, Status  string
		OfferStatus string `json:"offer_status"`
		OpensAt     string `json:"opens_at"`
	}
	var list struct{ Items []offered }
	two.get("/v1/me/offers", drivers[0].Token, &list)
	if want := (offered{id, "SCHEDULED", "SENT", wire}); len(list.Items) == 0 || list.Items[0] != want {
		t.Errorf("offered is %v, want %v first", list.Items, want)
	}
	db.exec("UPDATE dispatches SET opens_at = opens_at - ? WHERE id = ?", time.Hour.Microseconds(), id)
	a := mustWin(t, two, id, drivers[7], 1) // the same claim as before the opening
	mustBeTaken(t, one, id, drivers[8])
	db.mustBeWonBy(id, 1, drivers[7].ID, a.Claim.ID)
}

// TestRatesHoldOverInstances: a driver or a key that uses two instances at once is let through as often as the burst says, and then
// refused. Package limit tests that both instances together grant one share.
func TestRatesHoldOverInstances(t *testing.T) {
	t.Parallel()
	redisURL := servertest.StartRedis(t).URL()
	settings := []string{ownFile(t), "FIRSTTAP_REDIS_URL=" + redisURL, "FIRSTTAP_RATE_LIMIT_DRIVER=10/s", "FIRSTTAP_RATE_LIMIT_ADMIN=10/s"}
	instances := []*Instance{Start(t, settings...), Start(t, settings...)}
	d := MakeDrivers(t, instances[0], 1)[0]
	for path, token := range map[string]string{"/v1/me": d.Token, "/v1/admin/dispatches": AdminKey} {
		statuses := map[int]int{}
		for _, a := range Together(300, func(k int) Response { return send("GET", instances[k%2].URL+path, token, "") }) {
			statuses[a.status]++
			if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); a.status == 429 && (err != nil || seconds < 1) {
				t.Errorf("%s: Retry-After: %s, %s", path, a.header.Get("Retry-After"), a)
			}
		}
		if statuses[200] < 18 || statuses[429] == 0 || len(statuses) > 2 {
			t.Errorf("%s: the caller's requests were answered with %v", path, statuses)
		}
	}
	shared, err := redisAt(t, redisURL).Keys(t.Context(), "firsttap:rate:*").Result()
	if err != nil || len(shared) != 2 {
		t.Errorf("the instances share %q, want what the driver and the key have used; %v", shared, err)
	}
}
