package systemtest

import (
	"testing"

	"firsttap/servertest"
	"firsttap/testkit"
)

// A withdrawal whose COMMIT's reply was lost has happened. A driver who names no round must not get a final refusal.
func TestReplyOfWithdrawalIsLost(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, url string) {
		i, proxy := behindProxy(t, url, "FIRSTTAP_REDIS_URL="+servertest.StartRedis(t).URL())
		drivers := MakeDrivers(t, i, 2)
		id := MakeDispatch(t, i)
		if a := Accept(i, id, drivers[0], 1); !a.Won() {
			t.Fatal(a)
		}
		cut := proxy.CutReply("COMMIT", "UPDATE `dispatches`")
		send("POST", i.URL+"/v1/dispatches/"+id+"/withdraw", drivers[0].Token, "")
		testkit.Await(t, "the reply was cut", cut.Done())
		if a := send("POST", i.URL+"/v1/dispatches/"+id+"/withdraw", drivers[0].Token, ""); a.status != 200 || a.Round != 2 {
			t.Fatalf("the retry of the withdrawal: %s", a)
		}
		if a := Accept(i, id, drivers[1], 0); !a.Won() {
			t.Errorf("round 2 is open, and the driver got %s", a)
		}
	})
}
