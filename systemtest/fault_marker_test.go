package systemtest

import (
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// Redis' keys may be old, foreign or nonsense. That costs a round trip to the database, never the dispatch.
func TestInvalidRedisKeysAreNotTrusted(t *testing.T) {
	t.Parallel()
	url, redisURL := mariaDB(t), servertest.StartRedis(t).URL()
	i := Start(t, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_REDIS_URL="+redisURL)
	b, c := OpenDatabase(t, url), redisAt(t, redisURL)
	values := map[string]func(before, me string) string{
		"an old round's marker": func(before, _ string) string { return "taken:" + before + ":1" },
		"an old round's claim":  func(before, _ string) string { return "claim:" + before + ":1.clm_0" },
		"my own claim":          func(_, me string) string { return "claim:" + me + ":2.clm_0" },
		"my own marker":         func(_, me string) string { return "taken:" + me + ":2" },
		"nonsense":              func(_, _ string) string { return "nonsense" },
		"nothing":               func(_, _ string) string { return "" },
	}
	for name, value := range values {
		drivers := MakeDrivers(t, i, 2)
		id := MakeDispatch(t, i)
		if a := Accept(i, id, drivers[0], 1); !a.Won() {
			t.Fatal(a)
		}
		if a := send("POST", i.URL+"/v1/dispatches/"+id+"/withdraw", drivers[0].Token, ""); a.Round != 2 {
			t.Fatal(a)
		}
		if err := c.Set(t.Context(), "dispatch:lock:{"+id+"}", value(drivers[0].ID, drivers[1].ID), time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		a := Accept(i, id, drivers[1], 2)
		if !a.Won() {
			t.Errorf("%s stood in the way: %s", name, a)
			continue
		}
		b.mustBeWonBy(id, 2, drivers[1].ID, a.Claim.ID)
	}
	drivers, id := MakeDrivers(t, i, 1), MakeDispatch(t, i)
	if err := c.Set(t.Context(), "dispatch:lock:{"+id+"}", "claim:drv_rival:0.clm_0", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if a := Accept(i, id, drivers[0], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
		t.Errorf("a rival's claim is being decided: %s", a)
	}
}

// An admin cancels while a claim is on its way to the row.
func TestCancelOvertakesAClaim(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		i, proxy := behindProxy(t, url)
		other := Start(t, "FIRSTTAP_DATABASE_URL="+url)
		db := OpenDatabase(t, url)
		driver := MakeDrivers(t, other, 1)[0]
		id := MakeDispatch(t, other)
		hold := proxy.Hold("UPDATE dispatches")
		answered := make(chan Response, 1)
		go func() { answered <- Accept(i, id, driver, 1) }()
		testkit.Await(t, "the claim is being decided", hold.Reached())
		if a := sendWith("POST", other.URL+"/v1/admin/dispatches/"+id+"/cancel", AdminKey, "", "If-Match", `"1"`); a.status != 200 {
			t.Fatal(a)
		}
		hold.Release()
		if a := <-answered; a.Code != "DISPATCH_CANCELED" {
			t.Fatalf("the driver got %s", a)
		}
		if n := db.Count("dispatches WHERE id=? AND status='CANCELED' AND accepted_by IS NULL", id); n != 1 {
			t.Error("the canceled dispatch was taken")
		}
	})
}
