package systemtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// history is the responses to drivers and backoffice while the primary moves.
type history struct {
	mu      sync.Mutex
	answers map[string]map[string]int // by call and kind of response
	wins    []win
}

// win is one SUCCESS response.
type win struct {
	dispatch      string
	round         int
	driver, claim string
	at            time.Time
}

func (k *history) note(call string, a Response) {
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
}

// retried retries 503 and "not final" responses, as clients should.
func (k *history) retried(call string, ask func() Response) (a Response) {
	testkit.Poll(testkit.Patience, func() bool {
		a = ask()
		k.note(call, a)
		return a.err == nil && a.status != 503 && (a.Final == nil || *a.Final)
	})
	return a
}

func (k *history) won(w win) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wins = append(k.wins, w)
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

// crew is drivers that race for a dispatch, over any of the instances.
type crew struct {
	*history
	instances []*Instance
	drivers   []Driver
}

func (c *crew) any() *Instance { return c.instances[rand.IntN(len(c.instances))] }

// work makes the drivers race for one dispatch: the winner withdraws, and the others race for the next round, until two
// are left. Every response of every instance must be true at its time.
func (c *crew) work(t *testing.T) {
	made := c.retried("create", func() Response { return createDispatch(c.any(), DispatchOptions{}) })
	if made.status != 201 {
		t.Errorf("create: %s", made)
		return
	}
	racers := slices.Clone(c.drivers)
	for round := 1; len(racers) > 1; round++ {
		answers := Together(len(racers), func(k int) Response {
			return c.retried("accept", func() Response { return Accept(c.any(), made.ID, racers[k], round) })
		})
		winner := -1
		for k, a := range answers {
			switch {
			case a.Won():
				c.won(win{made.ID, round, racers[k].ID, a.Claim.ID, time.Now()})
				if winner >= 0 {
					t.Errorf("%s round %d: two drivers got SUCCESS", made.ID, round)
				}
				winner = k
			case a.Code != "ALREADY_TAKEN":
				t.Errorf("%s round %d: a loser got %s", made.ID, round, a)
			}
		}
		if winner < 0 {
			t.Errorf("%s round %d: no driver has it, and all were refused", made.ID, round)
			return
		}
		v := racers[winner]
		racers = slices.Delete(racers, winner, winner+1)
		for _, i := range c.instances {
			a := c.retried("accept again", func() Response { return Accept(i, made.ID, v, round) })
			if !a.Won() || !*a.Replayed || a.Claim.ID != answers[winner].Claim.ID {
				t.Errorf("%s round %d: the winner's retry: %s", made.ID, round, a)
			}
		}
		a := c.retried("withdraw", func() Response {
			return withdraw(c.any(), made.ID, v)
		})
		if a.status != 200 || a.Round != round+1 {
			t.Errorf("%s round %d: withdraw: %s", made.ID, round, a)
			return
		}
		for _, i := range c.instances {
			a := c.retried("accept what was given back", func() Response { return Accept(i, made.ID, v, round) })
			if a.Won() || a.status == 404 {
				t.Errorf("%s round %d: the retry of the driver who withdrew: %s", made.ID, round, a)
			}
		}
	}
}

// A group's primary moves under load, and connections to the old one stay open. No round is won twice, no win is lost, and
// no response is stale.
func TestPrimaryOfAGroupMovesUnderLoad(t *testing.T) {
	testkit.OnlyInAll(t)
	g := servertest.StartMySQLGroup(t)
	first := g.Primary()
	url := first.URL(t)
	proxy := servertest.StartProxy(t, first.Addr())
	instances, _ := startTwo(t, proxy.URL(url), ownRedis(t))
	k := &history{answers: map[string]map[string]int{}}
	const crews, each, enough = 100, 5, 30
	drivers := MakeDrivers(t, instances[0], crews*each)

	began, stop := time.Now(), make(chan struct{})
	var working sync.WaitGroup
	var next atomic.Int64 // the crews take turns, as each driver's withdrawals are limited
	for range 3 {
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					n := int(next.Add(1)) % crews
					(&crew{k, instances, drivers[n*each : (n+1)*each]}).work(t)
				}
			}
		})
	}
	stopped := sync.OnceFunc(func() { close(stop); working.Wait() })
	defer stopped()
	testkit.Eventually(t, "the drivers are at work", func() bool { return k.winsSince(began) >= enough })
	for _, to := range []*servertest.Database{g.Members[1], first} {
		g.Move(to)
		proxy.Redirect(to.Addr())
		moved := time.Now()
		testkit.Eventually(t, "the drivers go on after a move", func() bool { return k.winsSince(moved) >= enough })
	}
	stopped()

	db := OpenDatabase(t, url)
	winners := map[string]string{}
	for _, w := range k.wins {
		round := fmt.Sprintf("%s round %d", w.dispatch, w.round)
		if other, ok := winners[round]; ok && other != w.driver {
			t.Errorf("%s was won twice", round)
		}
		winners[round] = w.driver
		if n := db.Count("claims WHERE id=? AND dispatch_id=? AND round=? AND driver_id=?", w.claim, w.dispatch, w.round, w.driver); n != 1 {
			t.Errorf("%s: the driver got SUCCESS, and %d claims are stored", round, n)
		}
	}
	for _, i := range instances {
		if strings.Contains(i.log.String(), "ALERT") {
			t.Error("an alert, although nothing is lost")
		}
	}
	t.Logf("%d wins over two moves of the primary, answered with %v", len(k.wins), k.answers) // maps are printed in order
}
