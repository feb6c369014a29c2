package systemtest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// rings returns when the driver's phone rang for an open dispatch. A push that comes again, because the answer to it was late, counts
// once.
func (p *pushing) rings(d Driver) (times []time.Time) {
	rang := map[string]bool{} // by event
	for _, r := range p.fcm.Sends() {
		event := r.Data["event_id"]
		if r.Accepted && !r.Silent && r.Token == pushToken(d) && !rang[event] && slices.Contains([]string{"dispatch.opened", "dispatch.reopened"}, r.Data["type"]) {
			rang[event] = true
			times = append(times, r.At)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// mostInAMinute is the largest number of times within one minute.
func mostInAMinute(times []time.Time) (most int) {
	for i, from := range times {
		n := 0
		for _, at := range times[i:] {
			if !at.After(from.Add(time.Minute)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// loop has the accounts accept the dispatch and withdraw in turn, and calls pause after each withdrawal. It ends when an
// account may not withdraw any more, or after most withdrawals, and returns how many there were.
func loop(t *testing.T, i *Instance, id string, accounts []Driver, most int, pause func()) (withdrawals int) {
	for round := 1; withdrawals < most; {
		d := accounts[withdrawals%len(accounts)]
		if a := patiently(func() Response { return Accept(i, id, d, round) }); a.status != 200 {
			t.Errorf("accept: %s", a)
			return withdrawals
		}
		a := patiently(func() Response { return withdraw(i, id, d) })
		if tooManyWithdrawals(a) {
			return withdrawals
		}
		if a.status != 200 {
			t.Errorf("withdraw: %s", a)
			return withdrawals
		}
		round = a.Round
		withdrawals++
		pause()
	}
	return withdrawals
}

// patiently repeats a request that is refused because of too many requests or a moment's load.
func patiently(request func() Response) (a Response) {
	testkit.Poll(testkit.Patience, func() bool {
		a = request()
		return a.status < 500 && (a.status != 429 || tooManyWithdrawals(a))
	})
	return a
}

// tooManyWithdrawals tells a driver's limit of withdrawals from the limit of requests, which is over within a second.
func tooManyWithdrawals(a Response) bool {
	wait, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return a.status == 429 && wait > 60
}

// TestWithdrawalLoopRings: three drivers accept a dispatch and withdraw in turn, as often as they may. The other drivers'
// phones ring for the offer and after the first withdrawal, and once more for the round that is open when the delay is over.
func TestWithdrawalLoopRings(t *testing.T) {
	t.Parallel()
	p := startPushing(t, mariaDB(t))
	i := p.start("demo")
	cheats, honest := MakeDrivers(t, i, 3), MakeDriversWithPhones(t, i, "seoul", 3)
	id := MakeDispatch(t, i)
	ringsFor := func(n int) {
		t.Helper()
		for _, d := range honest {
			testkit.Eventually(t, fmt.Sprint(n, " rings"), func() bool { return len(p.rings(d)) >= n })
		}
	}
	ringsFor(1)
	const most = 6 // each of the three may withdraw twice
	withdrawals := loop(t, i, id, cheats, most, func() {
		ringsFor(2)
		// As if the loop took no time: what is delayed stays so.
		p.db.exec("UPDATE events SET next_at = next_at + ? WHERE next_at > ?", time.Hour.Microseconds(), time.Now().Add(time.Second).UnixMicro())
	})
	if withdrawals != most {
		t.Errorf("%d withdrawals, want %d", withdrawals, most)
	}
	p.db.exec("UPDATE events SET next_at = 0 WHERE dispatch_id = ? AND type = 'dispatch.reopened' ORDER BY round DESC LIMIT 1", id)
	ringsFor(3)
	p.db.exec("UPDATE events SET next_at = 0 WHERE next_at IS NOT NULL") // the rounds that are over
	p.settle()
	for _, d := range honest {
		if n := len(p.rings(d)); n != 3 {
			t.Errorf("a phone rings %d times, want 3", n)
		}
	}
	p.allShow(honest, id, "dispatch.reopened")
}

// TestWithdrawalLoopsRingFewTimes: drivers who accept a dispatch and withdraw in a loop, alone or in turn, make no phone
// ring more than a few times a minute, and a dispatch that is open in the end has rung.
func TestWithdrawalLoopsRingFewTimes(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	p := startPushing(t, mariaDB(t))
	i := p.start("demo", "FIRSTTAP_RATE_LIMIT_DRIVER=20/s")
	var looping sync.WaitGroup
	var checks []func()
	for name, c := range map[string]struct {
		accounts, dispatches int
		withdrawals          int // of a dispatch, at most
		paced                bool
		most                 int // rings in any minute
	}{
		"one account":                            {1, 1, 50, false, 5},
		"three accounts in turn":                 {3, 1, 50, false, 5},
		"three accounts, after each ring":        {3, 1, 4, true, 4},
		"three accounts, each on six dispatches": {3, 18, 50, false, 18 + 15}, // each account may withdraw five times
	} {
		region := fmt.Sprint("r", c.dispatches, c.accounts, c.paced)
		cheats, honest := makeDriversIn(t, i, region, c.accounts), MakeDriversWithPhones(t, i, region, 3)
		ids := make([]string, c.dispatches)
		for n := range ids {
			ids[n] = MakeDispatchWith(t, i, DispatchOptions{Region: region})
		}
		rung := func() int { return len(p.rings(honest[0])) }
		testkit.Eventually(t, "the offers ring", func() bool { return rung() >= len(ids) })
		withdrawals := make([]int, len(ids))
		for n, id := range ids {
			accounts := cheats
			if len(ids) > 1 {
				accounts = cheats[n%len(cheats) : n%len(cheats)+1]
			}
			before := rung()
			pause := func() {
				if c.paced && !testkit.Poll(2*time.Minute, func() bool { return rung() > before }) {
					t.Errorf("%s: the open dispatch does not ring", name)
				}
				before = rung()
			}
			looping.Go(func() { withdrawals[n] = loop(t, i, id, accounts, c.withdrawals, pause) })
		}
		checks = append(checks, func() {
			most, all := 0, 0
			for _, n := range withdrawals {
				all += n
			}
			for _, d := range honest {
				most = max(most, mostInAMinute(p.rings(d)))
			}
			t.Logf("%s: %d withdrawals, a phone rings %d times a minute at most", name, all, most)
			if all == 0 {
				t.Errorf("%s: nobody withdrew", name)
			}
			if most > c.most {
				t.Errorf("%s: a phone rings %d times in a minute, want %d at most", name, most, c.most)
			}
		})
	}
	looping.Wait()
	testkit.Within(t, 2*time.Minute, "nothing is left to push", p.db.nothingToPush)
	for _, check := range checks {
		check()
	}
}
