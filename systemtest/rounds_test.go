package systemtest

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// told is a driver's answer with status 200.
type told struct {
	driver   string
	round    int
	replayed bool
}

// rise raises n to least, and never lowers it: the answer to a repeated withdrawal may come after the next round's.
func rise(n *atomic.Int64, least int64) {
	for was := n.Load(); was < least && !n.CompareAndSwap(was, least); was = n.Load() {
	}
}

// Everything at once: drivers accept with and without a round at two instances, winners withdraw, locks are lost and
// connections to the database are cut, round after round. The database has exactly the claims that the drivers got. No other
// test runs beside it.
func TestRoundsUnderFire(t *testing.T) {
	onServers(t, func(t *testing.T, url string) {
		rounds := int64(testkit.Scale(20, 60))
		server := servertest.StartRedis(t)
		c := redisAt(t, server.URL())
		settings := []string{"FIRSTTAP_REDIS_URL=" + server.URL()}
		one, proxy := behindProxy(t, url, settings...)
		instances := []*Instance{one, Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url)...)}
		db := OpenDatabase(t, url)
		// A driver that has withdrawn may accept again, but has to name the round.
		drivers := MakeDrivers(t, one, 12)
		id := MakeDispatch(t, one)

		var (
			running sync.WaitGroup
			current atomic.Int64
			mu      sync.Mutex
			wins    = map[string]told{} // by claim
			wrong   []string
			busy    int
		)
		current.Store(1)
		hear := func(d Driver, a Response) {
			mu.Lock()
			defer mu.Unlock()
			switch before, again := wins[a.Claim.ID]; {
			case a.status == 503:
				busy++
			case a.err != nil || a.status >= 500 || a.Code == "INVALID_STATE" || a.Code == "DRIVER_BUSY":
				wrong = append(wrong, a.String())
			case !a.Won():
			case again && (before.driver != d.ID || !before.replayed && !*a.Replayed):
				wrong = append(wrong, fmt.Sprintf("%v, and then %s: %s", before, d.ID, a))
			default:
				wins[a.Claim.ID] = told{d.ID, claimRound(a), *a.Replayed && (!again || before.replayed)}
			}
		}
		const patience = 5 * time.Minute // with a round
		var stuck atomic.Bool
		watch := time.AfterFunc(patience, func() { stuck.Store(true) })
		defer watch.Stop()
		for k, d := range drivers {
			running.Go(func() {
				for n := k; current.Load() <= rounds && !stuck.Load(); n++ {
					i, round := instances[n%2], int(current.Load())
					if n%5 == 4 {
						round = 0
					}
					a := Accept(i, id, d, round)
					hear(d, a)
					if !a.Won() {
						continue
					}
					if n%3 == 0 { // as if the response was lost
						hear(d, Accept(instances[(n/2)%2], id, d, claimRound(a)))
					}
					for !stuck.Load() {
						w := withdraw(i, id, d)
						if w.status == 200 {
							rise(&current, int64(w.Round))
							watch.Reset(patience)
							break
						}
						if w.status == 429 { // as if an hour had passed
							db.exec("UPDATE claims SET ended_at=0 WHERE dispatch_id=? AND ended_at IS NOT NULL", id)
						}
					}
				}
			})
		}
		running.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for n := 0; current.Load() <= rounds && !stuck.Load(); n++ {
				switch n % 4 {
				case 0:
					c.FlushAll(t.Context())
				case 1:
					proxy.CutReply(callOfClaim)
				case 2:
					proxy.CutReply("COMMIT", "UPDATE `dispatches`") // of a withdrawal
				case 3:
					proxy.CutAll()
				}
				for was := current.Load(); current.Load() == was && !stuck.Load(); {
					<-tick.C
				}
			}
		})
		running.Wait()

		if n := current.Load(); n <= rounds {
			t.Errorf("stuck in round %d", n)
		}
		for _, w := range wrong {
			t.Error(w)
		}
		for claim, w := range wins {
			if n := db.Count("claims WHERE id=? AND dispatch_id=? AND driver_id=? AND round=?", claim, id, w.driver, w.round); n != 1 {
				t.Errorf("answered and not in the database: %s %v", claim, w)
			}
		}
		// One statement reads both: a claim that was answered with 503 may be committed by now.
		var claims, events int
		if err := db.DB.QueryRow(`SELECT (SELECT COUNT(*) FROM claims WHERE dispatch_id=?),
			(SELECT COUNT(*) FROM events WHERE dispatch_id=? AND type='dispatch.accepted')`, id, id).Scan(&claims, &events); err != nil {
			t.Fatal(err)
		}
		if events != claims {
			t.Errorf("%d claims, and %d events of claims", claims, events)
		}
		if n := db.Count("dispatches d JOIN claims c ON c.dispatch_id=d.id AND c.outcome='WON' WHERE d.id=? AND (c.id<>d.claim_id OR d.claim_id IS NULL)", id); n != 0 {
			t.Errorf("%d claims are still WON that the dispatch does not know", n)
		}
		everyKeyEnds(t, c)
		t.Logf("%d rounds, %d claims, %d of them answered, %d times 503", current.Load()-1, claims, len(wins), busy)
	})
}

func claimRound(a Response) int {
	var won struct{ Claim struct{ Round int } }
	if err := json.Unmarshal([]byte(a.body), &won); err != nil {
		return 0
	}
	return won.Claim.Round
}
