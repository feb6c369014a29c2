package systemtest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"firsttap/notify/fcmtest"
	"firsttap/servertest"
	"firsttap/testkit"
)

// rings notes when each phone has rung, and for what.
type rings struct {
	mu sync.Mutex
	at map[string]map[string][]time.Time // by the push's type and the phone's token
}

func listenToRings(fcm *fcmtest.Server) *rings {
	r := &rings{at: map[string]map[string][]time.Time{}}
	fcm.OnSend(func(q fcmtest.Request) {
		if q.Silent || !q.Accepted {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.at[q.Data["type"]] == nil {
			r.at[q.Data["type"]] = map[string][]time.Time{}
		}
		r.at[q.Data["type"]][q.Token] = append(r.at[q.Data["type"]][q.Token], q.At)
	})
	return r
}

// of returns when the driver's phone has rung for any of the types.
func (r *rings) of(d Driver, types ...string) (times []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range types {
		times = append(times, r.at[t][pushToken(d)]...)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// mostInAMinute is how many of the times are within any one minute.
func mostInAMinute(times []time.Time) (most int) {
	for i, from := range times {
		n := 0
		for _, at := range times[i:] {
			if at.Sub(from) <= time.Minute {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// loop has the accounts take the dispatch and give it back in turn until then, each time after pause, and returns how often
// they did. It ends when one of them has to keep it.
func loop(t *testing.T, i *Instance, id string, accounts []Driver, until time.Time, pause func()) (cycles int) {
	round := 1
	for n := 0; time.Now().Before(until); n++ {
		d := accounts[n%len(accounts)]
		for _, what := range []string{"accept", "withdraw"} {
			body := ""
			if what == "accept" {
				body = fmt.Sprintf(`{"round":%d}`, round)
			}
			a := Response{status: 503}
			for try := func() bool { return a.status == 429 || a.status >= 500 }; try() && time.Now().Before(until); {
				a = send("POST", i.URL+"/v1/dispatches/"+id+"/"+what, d.Token, body)
				if wait, _ := strconv.Atoi(a.header.Get("Retry-After")); a.status == 429 && wait > 60 {
					return cycles // too many withdrawals
				} else if try() {
					time.Sleep(50 * time.Millisecond) // too many requests, or a moment's load
				}
			}
			if a.status != 200 {
				if time.Now().Before(until) {
					t.Errorf("%s: %s", what, a)
				}
				return cycles
			}
			if what == "withdraw" {
				round = a.Round
				cycles++
			}
		}
		pause()
	}
	return cycles
}

// Whoever takes a dispatch and gives it back in a loop, alone or with others, rings nobody's phone more than a few times, and
// what is open in the end has rung.
func TestWithdrawLoopsRingFewTimes(t *testing.T) {
	fcm := StartFCM(t)
	i := Start(t, PushSettings(servertest.MariaDBURL(t), fcm, "demo", "FIRSTTAP_RATE_LIMIT_DRIVER=20/s")...)
	heard := listenToRings(fcm)
	var running sync.WaitGroup
	for name, c := range map[string]struct {
		accounts, dispatches int
		paced                bool
		most                 int // rings in any minute
	}{
		"one account":                            {1, 1, false, 5},
		"three accounts in turn":                 {3, 1, false, 5},
		"three accounts, after each ring":        {3, 1, true, 5},
		"three accounts, each on six dispatches": {3, 18, false, 18 + 15}, // each of them may give five back
	} {
		region := fmt.Sprint("r", c.dispatches, c.accounts, c.paced)
		cheats, honest := makeDriversIn(t, i, region, c.accounts), MakeDriversWithPhones(t, i, region, 3)
		ids := make([]string, c.dispatches)
		for n := range ids {
			ids[n] = MakeDispatchWith(t, i, DispatchOptions{Region: region})
		}
		rung := func() int { return len(heard.of(honest[0], "dispatch.opened", "dispatch.reopened")) }
		testkit.Eventually(t, "the offers ring", func() bool { return rung() >= len(ids) })
		until := time.Now().Add(time.Minute)
		running.Go(func() {
			var looping sync.WaitGroup
			cycles := make([]int, len(ids))
			for n, id := range ids {
				accounts := cheats
				if len(ids) > 1 {
					accounts = cheats[n%len(cheats) : n%len(cheats)+1]
				}
				before := rung()
				pause := func() {
					for c.paced && time.Now().Before(until) && rung() <= before {
						time.Sleep(20 * time.Millisecond)
					}
					before = rung()
				}
				looping.Go(func() { cycles[n] = loop(t, i, id, accounts, until, pause) })
			}
			looping.Wait()
			time.Sleep(time.Until(until))
			most, all := 0, 0
			for _, n := range cycles {
				all += n
			}
			for _, d := range honest {
				most = max(most, mostInAMinute(heard.of(d, "dispatch.opened", "dispatch.reopened")))
			}
			t.Logf("%s: given back %d times in a minute, a phone rings %d times at most", name, all, most)
			if all == 0 {
				t.Errorf("%s: nothing was given back", name)
			}
			if most > c.most {
				t.Errorf("%s: a phone rings %d times in a minute, want %d at most", name, most, c.most)
			}
		})
	}
	running.Wait()
}
