package systemtest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"firsttap/servertest"
	"firsttap/testkit"
)

// onOwnServers runs test on servers of its own, of the kinds [servertest.Servers], that it may break.
func onOwnServers(t *testing.T, test func(t *testing.T, db *servertest.Database)) {
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) { test(t, servertest.StartDatabase(t, kind)) })
}

// behindProxy starts an instance whose connections to the database can be broken.
func behindProxy(t *testing.T, url string, settings ...string) (*Instance, *servertest.Proxy) {
	t.Helper()
	_, rest, _ := strings.Cut(url, "@")
	addr, _, _ := strings.Cut(rest, "/")
	proxy := servertest.StartProxy(t, addr)
	return Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+proxy.URL(url))...), proxy
}

func TestReplyOfCommitIsLost(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, url string) {
		i, proxy := behindProxy(t, url, "FIRSTTAP_REDIS_URL="+servertest.StartRedis(t).URL())
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, i, 2)
		for range testkit.Scale(3, 30) {
			id := MakeDispatch(t, i)
			cut := proxy.CutReply("COMMIT", "UPDATE dispatches")
			a := Accept(i, id, drivers[0], 1)
			testkit.Await(t, "the reply was cut", cut.Done())
			if !a.Won() || *a.Replayed {
				t.Fatalf("the claim was committed, and its driver got %s", a)
			}
			db.mustBeWonBy(id, 1, drivers[0].ID, a.Claim.ID)
			if again := Accept(i, id, drivers[0], 1); !again.Won() || !*again.Replayed || again.Claim.ID != a.Claim.ID {
				t.Fatalf("the repetition: %s", again)
			}
			if other := Accept(i, id, drivers[1], 1); other.Code != "ALREADY_TAKEN" || !*other.Final {
				t.Fatal(other)
			}
		}
	})
}

// While it is unknown whether a claim was committed, the response says so; the retry gets the result.
func TestReplyOfCommitIsLostAndTheDatabaseToo(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		i, proxy := behindProxy(t, url, "FIRSTTAP_REDIS_URL="+servertest.StartRedis(t).URL())
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, i, 2)
		id := MakeDispatch(t, i)
		cut := proxy.CutReply("COMMIT", "UPDATE dispatches")
		away := proxy.Hold("SELECT id FROM dispatches") // the instance's question about the outcome does not arrive
		answered := make(chan Response, 1)
		go func() { answered <- Accept(i, id, drivers[0], 1) }()
		testkit.Await(t, "the reply was cut", cut.Done())
		testkit.Await(t, "the instance asks", away.Reached())
		proxy.Refuse(true)
		a := <-answered
		if a.status != 503 || a.Code != "CLAIM_UNAVAILABLE" || a.header.Get("Retry-After") == "" {
			t.Fatalf("the result is unknown, and the driver got %s", a)
		}
		if other := Accept(i, id, drivers[1], 1); other.Won() || other.Final != nil && *other.Final {
			t.Fatalf("another driver got %s", other)
		}
		proxy.Refuse(false)
		a = Accept(i, id, drivers[0], 1)
		if !a.Won() || !*a.Replayed {
			t.Fatalf("the truth is that the claim was committed: %s", a)
		}
		db.mustBeWonBy(id, 1, drivers[0].ID, a.Claim.ID)
	})
}

// An UPDATE without a reply is never committed: no 200, no final refusal, and the dispatch can be won.
func TestReplyOfUpdateIsLost(t *testing.T) {
	t.Parallel()
	onEveryServer(t, func(t *testing.T, url string) {
		i, proxy := behindProxy(t, url, "FIRSTTAP_REDIS_URL="+servertest.StartRedis(t).URL())
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, i, 2)
		for range testkit.Scale(3, 10) {
			id := MakeDispatch(t, i)
			cut := proxy.CutReply("UPDATE dispatches")
			a := Accept(i, id, drivers[0], 1)
			testkit.Await(t, "the reply was cut", cut.Done())
			if a.status != 503 || a.Code != "CLAIM_UNAVAILABLE" {
				t.Fatalf("without proof the driver got %s", a)
			}
			if n := db.Count("claims WHERE dispatch_id=?", id); n != 0 {
				t.Fatal("a claim without a 200")
			}
			a = Accept(i, id, drivers[1], 1)
			if !a.Won() {
				t.Fatalf("the dispatch is free: %s", a)
			}
			db.mustBeWonBy(id, 1, drivers[1].ID, a.Claim.ID)
		}
	})
}

func TestClientHangsUpDuringTheUpdate(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		i, proxy := behindProxy(t, url, "FIRSTTAP_REDIS_URL="+servertest.StartRedis(t).URL())
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, i, 2)
		for range testkit.Scale(3, 10) {
			id := MakeDispatch(t, i)
			hold := proxy.Hold("UPDATE dispatches")
			ctx, hangUp := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				req, err := http.NewRequestWithContext(ctx, "POST", i.URL+"/v1/dispatches/"+id+"/accept", strings.NewReader(`{"round":1}`))
				if err != nil {
					return
				}
				req.Header.Set("Authorization", "Bearer "+drivers[0].Token)
				if resp, err := Client.Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			testkit.Await(t, "the UPDATE is on its way", hold.Reached())
			hangUp()
			<-gone
			hold.Release()
			// The driver retries, before or after the decision.
			a := Accept(i, id, drivers[0], 1)
			if !a.Won() || !*a.Replayed {
				t.Fatalf("the retry after hanging up: %s", a)
			}
			if other := Accept(i, id, drivers[1], 1); other.Code != "ALREADY_TAKEN" {
				t.Fatal(other)
			}
			db.mustBeWonBy(id, 1, drivers[0].ID, a.Claim.ID)
		}
	})
}

// kill -9 of the database in the middle of races: a driver with a 200 has the dispatch after the restart. No other test runs
// beside these races.
func TestDatabaseIsKilledMidRace(t *testing.T) {
	onOwnServers(t, func(t *testing.T, db *servertest.Database) {
		url := db.URL(t)
		settings := []string{"FIRSTTAP_DATABASE_URL=" + url, "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()}
		instances := []*Instance{Start(t, settings...), Start(t, settings...)}
		b := OpenDatabase(t, url)
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
			db.Kill()
			racing.Wait()
			db.Start()
			for _, i := range instances {
				testkit.Eventually(t, "ready again", func() bool { return send("GET", i.URL+"/readyz", "", "").status == 200 })
			}
			for n, id := range ids {
				unknown += settleAfterKill(t, b, instances[0], id, drivers, told[n])
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
		return winner >= 0
	})
	db.mustBeWonBy(id, 1, drivers[winner].ID, claim)
	return unknown
}

// A holder of the lock whose commit fails has turned others away for nothing: they get the offer again, once.
func TestCommitFailsAfterOthersWereTurnedAway(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		settings := []string{"FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL(), lasting}
		one, proxy := behindProxy(t, url, settings...)
		two := Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url)...)
		db := OpenDatabase(t, url)
		drivers := MakeDrivers(t, one, 3)
		id := MakeDispatch(t, one)
		hold := proxy.Hold("UPDATE dispatches")
		answered := make(chan Response, 1)
		go func() { answered <- Accept(one, id, drivers[0], 1) }()
		testkit.Await(t, "the claim is being decided", hold.Reached())
		for k, i := range []*Instance{one, two} {
			if a := Accept(i, id, drivers[k+1], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
				t.Fatalf("while it is being decided: %s", a)
			}
		}
		proxy.CutAll()
		if a := <-answered; a.status != 503 {
			t.Fatal(a)
		}
		testkit.Eventually(t, "the drivers get the offer again", func() bool { return db.reannounced(id) > 0 })
		a := Accept(two, id, drivers[1], 1)
		if !a.Won() {
			t.Fatalf("the dispatch is free: %s", a)
		}
		db.mustBeWonBy(id, 1, drivers[1].ID, a.Claim.ID)
		if n := db.reannounced(id); n != 1 {
			t.Errorf("announced again %d times", n)
		}
		hold.Release()
	})
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
