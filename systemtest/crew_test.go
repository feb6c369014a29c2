package systemtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// history holds the responses to drivers and backoffice while servers fail.
type history struct {
	mu      sync.Mutex
	answers map[string]map[string]int // by call and kind of response
	phase   figures
	wins    []win
	untrue  []string // responses that were not true at their time
	wanted  int      // the number of wins until which all crews work at full speed
	// Untrue responses about dispatches that were created before excused are only counted, as excuses, and while excusing all of them.
	excusing bool
	excused  time.Time
	excuses  int
}

// figures are those of a phase of a history.
type figures struct {
	unknown            int           // calls without an answer, or with 503
	taps, unsure, wins int           // unsure is the taps of unknown
	longest            time.Duration // until the answer to a tap
}

// win is one SUCCESS response.
type win struct {
	dispatch      string
	round         int
	driver, claim string
	at            time.Time
}

func (k *history) note(call string, a Response, took time.Duration) {
	kind := fmt.Sprint(a.status)
	switch {
	case a.err != nil:
		kind = "none"
	case a.Won() && *a.Replayed:
		kind = "200 replayed"
	case a.Code == "ALREADY_TAKEN" && !*a.Final:
		kind = "409 ALREADY_TAKEN, not final"
	case a.Code != "":
		kind += " " + a.Code
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answers[call] == nil {
		k.answers[call] = map[string]int{}
	}
	k.answers[call][kind]++
	unknown := 0
	if a.err != nil || a.status == 503 {
		unknown = 1
	}
	k.phase.unknown += unknown
	if call == tapCall {
		k.phase.taps++
		k.phase.unsure += unknown
		k.phase.longest = max(k.phase.longest, took)
	}
}

// tapCall names the taps in the history, which counts their responses.
const tapCall = "accept"

// next begins a phase, and returns the figures of the one before.
func (k *history) next() figures {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.phase
	k.phase = figures{}
	return before
}

// unknown is the number of calls in this phase whose callers do not know the outcome.
func (k *history) unknown() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.phase.unknown
}

// retried retries 503 and "not final" responses, as clients should, and calls without an answer.
func (k *history) retried(call string, ask func() Response) (a Response) {
	answered := testkit.Poll(settled/2, func() bool {
		began := time.Now()
		a = ask()
		k.note(call, a, time.Since(began))
		return a.err == nil && a.status != 503 && (a.Final == nil || *a.Final)
	})
	k.mustBeTrue(answered, "%s: no other answer than %s", call, a)
	return a
}

func (k *history) won(w win) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wins = append(k.wins, w)
	k.phase.wins++
}

func (k *history) mustBeTrue(ok bool, format string, args ...any) {
	if ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.untrue = append(k.untrue, fmt.Sprintf(format, args...))
}

// excuse begins or ends a time in which responses need not be true: a server that is cut off answers reads from old data, and an instance
// that was led to it shortly before a failover notices half a second after it.
func (k *history) excuse(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.excusing, k.excused = on, time.Now()
}

func (k *history) excusesMade() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprintf("%d untrue responses just after a failover", k.excuses)
}

func (k *history) winsSince(since time.Time) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.wins {
		if w.at.After(since) {
			n++
		}
	}
	return n
}

// await waits until the drivers have won n rounds from now on. The crews go on at full speed for three times as many, into the fault that
// follows.
func (k *history) await(t *testing.T, what string, n int) {
	t.Helper()
	since := time.Now()
	k.want(4 * n)
	testkit.Within(t, settled, what, func() bool { return k.winsSince(since) >= n })
}

// want keeps the crews at full speed for the next n wins.
func (k *history) want(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = len(k.wins) + n
}

func (k *history) hasEnough() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.wins) >= k.wanted
}

// standstill is the longest time between a win and the next one, of the wins since then.
func (k *history) standstill(since time.Time) (longest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := since
	for _, w := range slices.SortedFunc(slices.Values(k.wins), func(a, b win) int { return a.at.Compare(b.at) }) {
		if w.at.After(since) {
			longest = max(longest, w.at.Sub(before))
			before = w.at
		}
	}
	return longest
}

// crew is drivers that race for a dispatch, over any of the instances.
type crew struct {
	*history
	instances func() []*Instance // those that run
	drivers   []Driver
	began     time.Time // the race for the dispatch at hand
}

// mustBeTrue is the history's, but for what is excused.
func (c *crew) mustBeTrue(ok bool, format string, args ...any) {
	c.mu.Lock()
	excused := c.excusing || c.excused.After(c.began)
	if !ok && excused {
		c.excuses++
	}
	c.mu.Unlock()
	c.history.mustBeTrue(ok || excused, format, args...)
}

func (c *crew) any() *Instance {
	all := c.instances()
	return all[rand.IntN(len(all))]
}

// work makes the drivers race for one dispatch: the winner withdraws, and the others race for the next round, until two
// are left. Every response of every instance must be true at its time.
func (c *crew) work() {
	c.began = time.Now()
	made := c.retried("create", func() Response { return createDispatch(c.any(), DispatchOptions{}) })
	if made.status != 201 {
		c.mustBeTrue(false, "create: %s", made)
		return
	}
	racers := slices.Clone(c.drivers)
	for round := 1; len(racers) > 1; round++ {
		winner := c.race(made.ID, round, racers)
		if winner < 0 {
			return
		}
		v := racers[winner]
		racers = slices.Delete(racers, winner, winner+1)
		a := c.retried("withdraw", func() Response { return withdraw(c.any(), made.ID, v) })
		c.mustBeTrue(a.status == 200 && a.Round == round+1, "%s round %d: withdraw: %s", made.ID, round, a)
		if a.status != 200 {
			return
		}
		for _, i := range c.instances() {
			a := c.retriedAt(i, "accept what was given back", func(i *Instance) Response { return Accept(i, made.ID, v, round) })
			c.mustBeTrue(!a.Won() && a.status != 404, "%s round %d: the retry of the driver who withdrew: %s", made.ID, round, a)
		}
	}
}

// race lets the racers tap, and returns which of them has won, or -1.
func (c *crew) race(id string, round int, racers []Driver) int {
	at := make([]time.Time, len(racers))
	answers := Together(len(racers), func(k int) Response {
		a := c.retried(tapCall, func() Response { return Accept(c.any(), id, racers[k], round) })
		at[k] = time.Now()
		return a
	})
	winner := -1
	for k, a := range answers {
		switch {
		case a.Won():
			c.won(win{id, round, racers[k].ID, a.Claim.ID, at[k]})
			c.mustBeTrue(winner < 0, "%s round %d: two drivers got SUCCESS", id, round)
			winner = k
		case a.Code != "ALREADY_TAKEN":
			c.mustBeTrue(false, "%s round %d: a loser got %s", id, round, a)
		}
	}
	c.mustBeTrue(winner >= 0, "%s round %d: no driver has it, and all were refused", id, round)
	if winner < 0 {
		return winner
	}
	for _, i := range c.instances() {
		a := c.retriedAt(i, "accept again", func(i *Instance) Response { return Accept(i, id, racers[winner], round) })
		c.mustBeTrue(a.Won() && *a.Replayed && a.Claim.ID == answers[winner].Claim.ID, "%s round %d: the winner's retry: %s", id, round, a)
	}
	return winner
}

// retriedAt is retried at an instance that may be killed. Then another one answers.
func (c *crew) retriedAt(i *Instance, call string, ask func(*Instance) Response) Response {
	return c.retried(call, func() Response {
		if !slices.Contains(c.instances(), i) {
			i = c.any()
		}
		return ask(i)
	})
}

// startCrews puts drivers to work over the instances, until stop is called. Once they have the wins that are wanted, crews rest after each
// dispatch, and leave the processors to the servers. The first crew rests for a tenth of the time only: a fault meets claims at any moment.
func startCrews(k *history, instances func() []*Instance, rest time.Duration) (stop func()) {
	const crews, each = 3, 5
	end := make(chan struct{})
	var working sync.WaitGroup
	for place := range crews {
		working.Go(func() {
			c := &crew{history: k, instances: instances}
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				if n%dispatch.MaxWithdrawalsPerDriver == 0 && !c.hire(each) {
					return
				}
				c.work()
				if !k.hasEnough() {
					continue
				}
				pause := rest
				if place == 0 {
					pause /= 10
				}
				select {
				case <-end:
				case <-time.After(pause): //nolint:forbidigo // drivers who have won enough rest
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(end); working.Wait() })
}

// hire makes new drivers the crew: each dispatch costs one of their withdrawals, which are limited.
func (c *crew) hire(n int) bool {
	made := c.retried("drivers", func() Response { return createDrivers(c.any(), "seoul", n) })
	c.drivers = made.drivers()
	c.mustBeTrue(len(c.drivers) == n, "drivers: %s", made)
	return len(c.drivers) == n
}
