package systemtest

import (
	"testing"

	"firsttap/testkit"
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
	db.mustBeWonBy(id, drivers[winner].ID, answers[winner].Claim.ID)
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
