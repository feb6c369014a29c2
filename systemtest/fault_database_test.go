package systemtest

import (
	"sync"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// onOwnServers runs test on servers of its own, of the kinds [servertest.Servers], that it may break.
func onOwnServers(t *testing.T, test func(t *testing.T, db *servertest.Database)) {
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) { test(t, servertest.StartDatabase(t, kind)) })
}

// kill -9 of the database in the middle of races: a driver with a 200 has the dispatch after the restart. No other test runs
// beside these races.
func TestDatabaseIsKilledMidRace(t *testing.T) {
	onOwnServers(t, func(t *testing.T, server *servertest.Database) {
		instances, db := startTwo(t, server.URL(t), ownRedis(t))
		drivers := MakeDrivers(t, instances[0], 30)
		unknown := 0
		for range testkit.Scale(1, 6) {
			var ids []string
			for range 10 {
				ids = append(ids, MakeDispatch(t, instances[0]))
			}
			told := make([][]Response, len(ids))
			var racing sync.WaitGroup
			begun := make(chan struct{})
			var once sync.Once
			for n, id := range ids {
				racing.Go(func() {
					told[n] = Together(len(drivers), func(k int) Response {
						a := Accept(instances[k%2], id, drivers[k], 1)
						if a.Won() {
							once.Do(func() { close(begun) })
						}
						return a
					})
				})
			}
			testkit.Await(t, "a driver has won", begun)
			server.Kill()
			racing.Wait()
			server.Start()
			for _, i := range instances {
				testkit.Eventually(t, "ready again", i.isReady)
			}
			for n, id := range ids {
				unknown += settleAfterKill(t, db, instances[0], id, drivers, told[n])
			}
		}
		t.Logf("%d answers were 503, and every driver with a 200 has the dispatch", unknown)
	})
}

// settleAfterKill checks the responses against the database, and retries those that were 503.
func settleAfterKill(t *testing.T, db *Database, i *Instance, id string, drivers []Driver, told []Response) (unknown int) {
	t.Helper()
	winner := -1
	for k, a := range told {
		switch {
		case a.Won() && winner >= 0:
			t.Fatalf("two drivers got SUCCESS for %s", id)
		case a.Won():
			winner = k
		case a.status == 503 && a.Code == "CLAIM_UNAVAILABLE":
			unknown++
		case a.Code != "ALREADY_TAKEN":
			t.Fatalf("while the database was killed a driver got %s", a)
		}
	}
	if winner >= 0 {
		db.mustBeWonBy(id, 1, drivers[winner].ID, told[winner].Claim.ID)
	}
	var claim string
	testkit.Eventually(t, "retries win the dispatch or find it won", func() bool {
		for k, d := range drivers {
			a := Accept(i, id, d, 1)
			if a.Won() {
				if winner >= 0 && winner != k {
					t.Fatalf("the winner of %s was %s and then %s", id, drivers[winner].ID, d.ID)
				}
				winner, claim = k, a.Claim.ID
			}
		}
		return claim != "" // the winner's own retry may be a 503
	})
	db.mustBeWonBy(id, 1, drivers[winner].ID, claim)
	return unknown
}

// Accepted dispatches survive kill -9 of the service on its embedded database.
func TestEmbeddedDefaultSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	setting := "FIRSTTAP_DATABASE_URL=sqlite://" + dir + "/firsttap.db"
	i := Start(t, setting)
	drivers := MakeDrivers(t, i, 30)
	won := map[string]int{}
	claims := map[string]string{}
	rounds := testkit.Scale(3, 10)
	for range rounds {
		id := MakeDispatch(t, i)
		for k, a := range Together(len(drivers), func(k int) Response { return Accept(i, id, drivers[k], 1) }) {
			if a.Won() {
				won[id], claims[id] = k, a.Claim.ID
			}
		}
		i.Kill()
		i = Start(t, setting)
	}
	if len(won) != rounds {
		t.Fatalf("%d of %d won", len(won), rounds)
	}
	for id, k := range won {
		if a := Accept(i, id, drivers[k], 1); !a.Won() || !*a.Replayed || a.Claim.ID != claims[id] {
			t.Errorf("after the restart the winner gets %s", a)
		}
		if a := Accept(i, id, drivers[(k+1)%30], 1); a.Code != "ALREADY_TAKEN" {
			t.Errorf("after the restart a loser gets %s", a)
		}
	}
}
