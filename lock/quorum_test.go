package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// quorumFixture is a quorum of three servers, each behind a proxy.
type quorumFixture struct {
	servers []*servertest.Redis
	links   []*servertest.Proxy
	clients []redis.UniversalClient
	nodes   []*Redis // through the proxies
	quorum  *Quorum
}

func newElectorate(t *testing.T) *quorumFixture {
	t.Helper()
	e := &quorumFixture{}
	for range 3 {
		e.add(t, servertest.StartRedis(t))
	}
	e.quorum = quorumOf(t, e.nodes...)
	return e
}

func (e *quorumFixture) add(t *testing.T, server *servertest.Redis) {
	t.Helper()
	link := servertest.StartProxy(t, server.Addr())
	e.servers, e.links = append(e.servers, server), append(e.links, link)
	e.clients = append(e.clients, client(t, server.URL()))
	e.nodes = append(e.nodes, NewRedis(client(t, link.URL(server.URL())), TaggedKeys("lock")))
}

func client(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	c, err := redisclient.Dial(url, Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func quorumOf(t *testing.T, nodes ...*Redis) *Quorum {
	t.Helper()
	q, err := NewQuorum(nodes...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// newQuorum returns the quorum of another client, without the proxies.
func (e *quorumFixture) newQuorum(t *testing.T) *Quorum {
	t.Helper()
	var nodes []*Redis
	for _, direct := range e.clients {
		nodes = append(nodes, NewRedis(direct, TaggedKeys("lock")))
	}
	return quorumOf(t, nodes...)
}

// owners returns the owner of name on each server.
func (e *quorumFixture) owners(t *testing.T, name string) (owners [3]string) {
	t.Helper()
	for i, direct := range e.clients {
		h, _ := NewRedis(direct, TaggedKeys("lock")).Show(t.Context(), name) // no owner if the server does not answer
		owners[i] = h.Owner
	}
	return owners
}

// awaitAllVotes waits until the lease holds its name on every server.
func (e *quorumFixture) awaitAllVotes(t *testing.T, lease *Lease) {
	t.Helper()
	mine := [3]string{lease.Owner(), lease.Owner(), lease.Owner()}
	testkit.Eventually(t, "all have voted", func() bool { return e.owners(t, lease.Name()) == mine })
}

func newLocker(t *testing.T, s Strategy) *Locker {
	t.Helper()
	l := New(s, Options{Instance: "tester", Timeout: Patience})
	t.Cleanup(l.Close)
	return l
}

func frequentlyRenewed() Hold {
	return Hold{TTL: time.Minute, RenewEvery: 20 * time.Millisecond, AtMost: time.Hour}
}

// quorumFaults make one of the servers unusable, and usable again.
var quorumFaults = map[string]struct{ begin, end func(*quorumFixture, int) }{
	"killed":      {func(e *quorumFixture, i int) { e.servers[i].Kill() }, func(e *quorumFixture, i int) { e.servers[i].Start() }},
	"frozen":      {func(e *quorumFixture, i int) { e.servers[i].Freeze() }, func(e *quorumFixture, i int) { e.servers[i].Thaw() }},
	"partitioned": {func(e *quorumFixture, i int) { e.links[i].Blackhole(true) }, func(e *quorumFixture, i int) { e.links[i].Blackhole(false) }},
	"flushed":     {func(e *quorumFixture, i int) { e.clients[i].FlushAll(context.Background()) }, func(*quorumFixture, int) {}},
}

func TestQuorumGoesOnWithoutOne(t *testing.T) {
	for what, fault := range quorumFaults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newElectorate(t)
			l := newLocker(t, e.quorum)
			lease, err := l.Acquire(t.Context(), "before", frequentlyRenewed())
			if err != nil {
				t.Fatal(err)
			}
			e.awaitAllVotes(t, lease) // otherwise the flushed server might be one of only two
			fault.begin(e, 1)
			during, err := l.Acquire(t.Context(), "during", frequentlyRenewed())
			if err != nil {
				t.Fatal(err)
			}
			wantErr(t, "a rival", acquireErr(t, e.quorum, "before", "rival", time.Minute), ErrHeld)
			for _, lease := range []*Lease{lease, during} {
				before := lease.TrustedUntil()
				testkit.Eventually(t, "the lease is renewed", func() bool { return lease.TrustedUntil().After(before) })
				wantErr(t, "release", lease.Release(t.Context()), nil)
				g, err := e.quorum.Acquire(t.Context(), lease.Name(), "rival", time.Minute)
				if err != nil {
					t.Fatalf("what was released: %v", err)
				}
				if g.Fence() <= lease.Fence() {
					t.Errorf("fence %d after %d", g.Fence(), lease.Fence())
				}
				wantErr(t, "the rival's release", g.Release(t.Context(), 0), nil)
			}
			fault.end(e, 1)
		})
	}
}

// A majority decides, without the answer of a server that never comes.
func TestQuorumDoesNotWaitForTheLast(t *testing.T) {
	for what, answers := range map[string][3]error{
		"acquired": {nil, nil, errPending}, "held": {errPending, &HeldError{}, &HeldError{}}, "lost": {ErrLost, errPending, ErrLost},
	} {
		t.Run(what, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				late, began := make(chan struct{}), time.Now()
				defer close(late)
				_, v := askAll(t.Context(), 3, func(_ context.Context, i int) (int, error) {
					if errors.Is(answers[i], errPending) {
						<-late
					}
					return i, answers[i]
				}, votes.decided)
				if !v.decided() || v.yes+v.no != 2 || time.Since(began) > 0 {
					t.Errorf("%+v after %s", v, time.Since(began))
				}
			})
		})
	}
}

// Without a majority the quorum is unavailable, whatever a single server answers.
func TestQuorumWithoutTwoIsUnavailable(t *testing.T) {
	t.Parallel()
	for what, fault := range quorumFaults {
		if what == "flushed" {
			continue // it answers, and no name is held
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newElectorate(t)
			l := New(e.quorum, Options{}) // it waits for a second
			t.Cleanup(l.Close)
			hold := Renewed(6*time.Second, time.Minute)
			hold.Wait = testkit.Patience
			lease, err := l.Acquire(t.Context(), "held", hold)
			if err != nil {
				t.Fatal(err)
			}
			fault.begin(e, 0)
			fault.begin(e, 2)
			for _, name := range []string{"held", "free"} {
				_, err := l.Acquire(t.Context(), name, Fixed(time.Minute))
				if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
					t.Errorf("%s: got %v, want %v", name, err, ErrUnavailable)
				}
			}
			<-lease.Context().Done()
			wantErr(t, "why the lease ended", context.Cause(lease.Context()), ErrUnreachable)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for what, err := range map[string]error{
				"Show":  func() error { _, err := e.quorum.Show(ctx, "held"); return err }(),
				"List":  func() error { _, err := e.quorum.List(ctx); return err }(),
				"Break": func() error { _, err := e.quorum.Break(ctx, "broken"); return err }(),
			} {
				wantErr(t, what, err, ErrUnavailable)
			}
			fault.end(e, 0)
			fault.end(e, 2)
			wantErr(t, "release", lease.Release(t.Context()), ErrUnreachable)
			for _, name := range []string{"held", "free"} { // nothing is left on the servers
				acquireEventually(t, e.quorum, name)
			}
		})
	}
}

// Of ten concurrent candidates that split the votes, one succeeds at most, and usually one does.
func TestQuorumElectsOneOfTen(t *testing.T) {
	e := newElectorate(t)
	const contenders = 10
	rounds := testkit.Scale(10, 20)
	clients := make([]*Quorum, contenders)
	for i := range clients {
		clients[i] = e.newQuorum(t)
	}
	won := 0
	for round := range rounds {
		name := fmt.Sprint("round", round)
		var mu sync.Mutex
		var winners []Grant
		testkit.Together(contenders, func(i int) {
			g, err := clients[i].Acquire(t.Context(), name, fmt.Sprint("owner", i), time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners = append(winners, g)
			} else if !errors.Is(err, ErrHeld) {
				t.Errorf("got %v, want %v", err, ErrHeld)
			}
		})
		if len(winners) > 1 {
			t.Errorf("%d of %d acquired the name", len(winners), contenders)
		}
		won += len(winners)
	}
	if t.Logf("a candidate succeeded in %d of %d rounds", won, rounds); won == 0 {
		t.Errorf("no candidate succeeded in %d rounds", rounds)
	}
}

// A late rollback of a candidate's first try must not remove a vote of its next try.
func TestQuorumVoteThatIsTakenBackLate(t *testing.T) {
	e := newElectorate(t)
	others := [2]*Redis{NewRedis(e.clients[0], TaggedKeys("lock")), NewRedis(e.clients[1], TaggedKeys("lock"))}
	mustAcquire(t, e.quorum, "warm", "up", time.Minute).Release(t.Context(), 0)
	for i := range 20 {
		name := fmt.Sprint("a", i)
		first, second := mustAcquire(t, others[0], name, "x", time.Minute), mustAcquire(t, others[1], name, "y", time.Minute)
		// The vote is split, and the rollback on the third server is late.
		late := e.links[2].Hold(TaggedKeys("lock").releaseChannel(name))
		type result struct {
			g   Grant
			err error
		}
		got := make(chan result, 1)
		go func() {
			g, err := e.quorum.Acquire(t.Context(), name, "contender", time.Minute)
			got <- result{g, err}
		}()
		select {
		case <-late.Reached():
		case r := <-got:
			if r.err == nil {
				t.Fatal("acquired the name although two others have a vote each")
			}
			got <- r
		}
		wantErr(t, "release", first.Release(t.Context(), 0), nil)
		r := <-got
		late.Release()
		wantErr(t, "release", second.Release(t.Context(), 0), nil)
		if r.err != nil {
			continue // refused because of its own vote, which is not rolled back yet
		}
		rivals, end := e.newQuorum(t), time.After(50*time.Millisecond) //nolint:forbidigo // no rival may get the name meanwhile
		for asking := true; asking; {
			if rival, err := rivals.Acquire(t.Context(), name, "rival", time.Minute); err == nil {
				t.Fatalf("two have the name: fences %d and %d; the votes are %v", r.g.Fence(), rival.Fence(), e.owners(t, name))
			}
			select {
			case <-end:
				asking = false
			default:
			}
		}
	}
}

// A refused candidate leaves no vote on a slow server, where it would count against the next candidate.
func TestQuorumLoserLeavesNoVote(t *testing.T) {
	e := newElectorate(t)
	mustAcquire(t, e.quorum, "warm", "up", time.Minute).Release(t.Context(), 0)
	holder := [2]Grant{}
	for i := range holder { // on a majority, without the third server
		holder[i] = mustAcquire(t, NewRedis(e.clients[i], TaggedKeys("lock")), "a", "holder", time.Minute)
	}
	slow := e.links[2].Hold("loser")
	wantErr(t, "the loser", acquireErr(t, e.quorum, "a", "loser", time.Minute), ErrHeld)
	<-slow.Reached()
	slow.Release()
	for i := range holder {
		wantErr(t, "release", holder[i].Release(t.Context(), 0), nil)
	}
	e.servers[0].Kill()
	acquireEventually(t, e.quorum, "a") // the two other servers are enough
}

// A holder that has lost its name leaves no vote on a server that did not know the name.
func TestQuorumLostHolderLeavesNoVote(t *testing.T) {
	e := newElectorate(t)
	lost := mustAcquire(t, e.quorum, "a", "me", time.Minute)
	testkit.Eventually(t, "all have voted", func() bool { return e.owners(t, "a") == [3]string{"me", "me", "me"} })
	for i := range e.clients {
		e.clients[i].FlushAll(t.Context())
	}
	for i := range 2 { // on a majority, without the third server
		mustAcquire(t, NewRedis(e.clients[i], TaggedKeys("lock")), "a", "rival", time.Minute)
		e.links[i].Delay(20 * time.Millisecond) // the third server answers before the decision
	}
	for range 3 {
		wantErr(t, "a renewal", lost.Extend(t.Context(), time.Minute), ErrLost)
	}
	if got := e.owners(t, "a"); got != [3]string{"rival", "rival", ""} {
		t.Errorf("the owners are %q", got)
	}
}

// What remains of a lease is what a majority has, though a renewal has not reached one server yet.
func TestQuorumRemainingTime(t *testing.T) {
	e := newElectorate(t)
	mustAcquire(t, e.quorum, "a", "me", time.Hour)
	testkit.Eventually(t, "all have voted", func() bool { return e.owners(t, "a") == [3]string{"me", "me", "me"} })
	if set, err := e.clients[1].PExpire(t.Context(), "lock:{a}", time.Minute).Result(); !set || err != nil {
		t.Fatal(set, err)
	}
	for _, without := range []int{0, 2} { // the answers are that server's and another's
		e.servers[without].Freeze()
		_, err := e.newQuorum(t).Acquire(t.Context(), "a", "rival", time.Minute)
		var held *HeldError
		if !errors.As(err, &held) || held.Owner != "me" || held.Remaining <= time.Minute || held.Remaining > time.Hour {
			t.Errorf("without server %d: %v, want held by me for nearly an hour", without, err)
		}
		e.servers[without].Thaw()
	}
	if h, err := e.quorum.Show(t.Context(), "a"); err != nil || h.Remaining <= time.Minute {
		t.Errorf("Show: %+v, %v", h, err)
	}
	if list, err := e.quorum.List(t.Context()); err != nil || len(list) != 1 || list[0].Remaining <= time.Minute {
		t.Errorf("List: %+v, %v", list, err)
	}
}

// A server that does not answer delays Show and List, and does not make them fail.
func TestQuorumShowsWithoutOne(t *testing.T) {
	t.Parallel()
	e := newElectorate(t)
	mustAcquire(t, e.quorum, "a", "me", time.Minute)
	testkit.Eventually(t, "all have voted", func() bool { return e.owners(t, "a") == [3]string{"me", "me", "me"} })
	e.servers[1].Freeze()
	defer e.servers[1].Thaw()
	var asking sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), Patience) // they wait for the frozen server until it ends
	defer cancel()
	asking.Go(func() {
		if h, err := e.quorum.Show(ctx, "a"); err != nil || h.Owner != "me" {
			t.Errorf("Show: %+v, %v", h, err)
		}
	})
	asking.Go(func() {
		if list, err := e.quorum.List(ctx); err != nil || len(list) != 1 {
			t.Errorf("List: %v, %v", list, err)
		}
	})
	asking.Wait()
}

func TestQuorumIsOdd(t *testing.T) {
	for n := range 6 {
		if _, err := NewQuorum(make([]*Redis, n)...); (err == nil) != (n == 3 || n == 5) {
			t.Errorf("%d servers: %v", n, err)
		}
	}
}
