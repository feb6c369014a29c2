// Package locktest is a test suite that every strategy of package lock has to pass, on its real server and while that
// server fails. The author of a strategy fills in a [Rig] and calls [Run]:
//
//	func TestMine(t *testing.T) { locktest.Run(t, locktest.Rig{Open: open, Start: start, MinTTL: 100 * time.Millisecond}) }
//
// [Simulated] is the rig with which the suite tests Locker and Leader themselves, without a server.
package locktest

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/lock"
)

// Rig says how to open a strategy, what to expect of it, and how to break its server.
type Rig struct {
	// Open returns a strategy for the server at url and for TTLs of up to longest. It has a client of its own, with
	// timeouts of about five seconds, which is closed with the test. The suite calls Open also in processes that it
	// starts.
	Open func(t testing.TB, url string, longest time.Duration) lock.Strategy
	// Start starts a server that ends with the test.
	Start func(t testing.TB) Server
	// StartSkewed is Start for a server whose clock is ahead by offset, which may be negative.
	StartSkewed func(t testing.TB, offset time.Duration) Server

	// MinTTL is the shortest TTL of the tests; the others are multiples of it. 100 ms is short enough.
	MinTTL time.Duration
	// EndsWithConnection means that a name is freed when its holder's connection ends.
	EndsWithConnection bool
	// Volatile means that a killed server restarts without its leases.
	Volatile bool
	// HidesHolder means that a HeldError has neither an Owner nor a remaining time.
	HidesHolder bool
	// MayRefuseAll means that all of several concurrent attempts may be refused.
	MayRefuseAll bool
	// Scope is which tests run. The zero value is all.
	Scope Scope
	// Missing says why a hook is missing, by its name: StartSkewed, Link, Partition, Delay, Cut, LoseReply, HoldRequest,
	// Freeze, Flush or Kill. Tests that need the hook are skipped.
	Missing map[string]string

	simulated bool // its tests run in bubbles
}

// Scope is a part of the suite.
type Scope int

// The scopes; each contains the following ones.
const (
	// Everything also repeats, on the real server, what Locker and Leader do with any strategy.
	Everything Scope = iota
	// Faults also breaks the server, the network, and processes that hold names.
	Faults
	// Contract is what only the strategy itself can prove: one owner at a time, fences, names, ends of grants, and what
	// operators and waiters are told.
	Contract
)

// Server is a running server with hooks to break it.
type Server struct {
	URL string
	// Link returns another way to the server, for one client, which can be broken without affecting others. It ends with
	// the test.
	Link func(t testing.TB) Link
	// Freeze suspends the server without closing its connections; Thaw resumes it.
	Freeze, Thaw func()
	// Flush deletes all of the server's data.
	Flush func()
	// Kill kills the server like kill -9, and Start starts it again at the same URL.
	Kill, Start func()
}

// Link is a way to a server that can be broken.
type Link struct {
	URL string
	// Partition drops all data in both directions while it is on, without closing a connection.
	Partition func(on bool)
	// Delay delays each answer by d; 0 ends that.
	Delay func(d time.Duration)
	// Cut closes all current connections.
	Cut func()
	// LoseReply closes the connection instead of passing on the reply to the next such request about name. The channel
	// is closed when that has happened.
	LoseReply func(name string, request Request) <-chan struct{}
	// HoldRequest holds back the next such request about name until release is called, and then passes it on even if the
	// client has closed its connection. reached is closed when the request has arrived.
	HoldRequest func(name string, request Request) (reached <-chan struct{}, release func())
}

// Request is a kind of request to a server.
type Request string

// The kinds of requests.
const (
	Acquire Request = "acquire"
	Renew   Request = "renew"
	Release Request = "release"
)

// hooks reports which hooks a rig has, by name.
func (r Rig) hooks(t testing.TB, s Server) map[string]bool {
	var link Link
	if s.Link != nil {
		link = s.Link(t)
	}
	return map[string]bool{
		"StartSkewed": r.StartSkewed != nil, "Link": s.Link != nil, "Partition": link.Partition != nil,
		"Delay": link.Delay != nil, "Cut": link.Cut != nil, "LoseReply": link.LoseReply != nil, "HoldRequest": link.HoldRequest != nil,
		"Freeze": s.Freeze != nil && s.Thaw != nil, "Flush": s.Flush != nil, "Kill": s.Kill != nil && s.Start != nil,
	}
}

// checkHooks fails the test if a hook is missing without a reason, or present in spite of one.
func (r Rig) checkHooks(t testing.TB, hooks map[string]bool) {
	for _, hook := range slices.Sorted(maps.Keys(hooks)) {
		reason := r.Missing[hook]
		switch {
		case hooks[hook] && reason != "":
			t.Errorf("the hook %s exists, but Missing says: %s", hook, reason)
		case !hooks[hook] && reason == "" && r.Scope < Contract:
			t.Errorf("the hook %s is missing, and Missing does not say why", hook)
		case !hooks[hook] && r.Scope < Contract:
			t.Logf("tests that need %s are skipped: %s", hook, reason)
		}
	}
	for hook := range r.Missing {
		if _, known := hooks[hook]; !known {
			t.Errorf("Missing contains %q, which is not a hook", hook)
		}
	}
}

// suite is a rig with a server that the tests share.
type suite struct {
	Rig
	Server
}

type test struct {
	name string
	run  func(*suite, *testing.T)
	// needs lists the hooks and properties that the test needs.
	needs string
	// scope is the smallest scope that the test is a part of.
	scope Scope
}

// Run tests a strategy. The top-level test must do nothing else, because the suite runs it again in processes that hold a
// name and fail.
func Run(t *testing.T, rig Rig) {
	switch {
	case isChild():
		rig.runChild(t)
	case rig.simulated:
		rig.runInBubbles(t)
	default:
		rig.runTogether(t)
	}
}

// runInBubbles runs each test on a simulated server of its own.
func (r Rig) runInBubbles(t *testing.T) {
	var there map[string]bool
	testkit.Bubble(t, func(t *testing.T) { there = r.check(t, &suite{r, r.Start(t)}) })
	for _, c := range r.sensible(there, everyTest, breaking, sweeps) {
		t.Run(c.name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) { c.run(&suite{r, r.Start(t)}, t) })
		})
	}
}

// maxTogether is how many tests run concurrently. The flag -parallel is not used: it counts processors, and these tests
// mostly wait.
const maxTogether = 8

// runTogether runs tests that mostly wait and, concurrently but one after another, the tests that break a server.
func (r Rig) runTogether(t *testing.T) {
	s := &suite{r, r.Start(t)}
	there := r.check(t, s)
	var running sync.WaitGroup
	if breaking := r.sensible(there, breaking); len(breaking) > 0 {
		victim := &suite{r, r.Start(t)}
		running.Go(func() {
			for _, c := range breaking {
				t.Run(c.name, func(t *testing.T) { c.run(victim, t) })
			}
		})
	}
	room := make(chan bool, maxTogether)
	for _, c := range r.sensible(there, everyTest) {
		room <- true
		running.Go(func() {
			t.Run(c.name, func(t *testing.T) { c.run(s, t) })
			<-room
		})
	}
	running.Wait()
}

// check checks the hooks, and returns what this rig has of the words in a test's needs.
func (r Rig) check(t *testing.T, s *suite) map[string]bool {
	there := r.hooks(t, s.Server)
	r.checkHooks(t, there)
	_, there["Watcher"] = s.open(t).(lock.Watcher)
	_, there["Admin"] = s.open(t).(lock.Admin)
	there["Processes"], there["TTL"] = !r.simulated, !r.EndsWithConnection
	return there
}

// sensible returns the tests of the rig's scope that have what they need.
func (r Rig) sensible(there map[string]bool, tests ...[]test) []test {
	return slices.DeleteFunc(slices.Concat(tests...), func(c test) bool {
		return c.scope < r.Scope || slices.ContainsFunc(strings.Fields(c.needs), func(what string) bool { return !there[what] })
	})
}

// everyTest are the tests that leave their server whole. Those that wait longest begin first.
var everyTest = slices.Concat(partitions, processes, clocks, leaders, holds, cuts, doTests, basics, names, admin, contention)
