// Package locktest is a test suite that every strategy of package lock has to pass, on its real server and while that
// server fails. The author of a strategy fills in a [Rig] and calls [Run]:
//
//	func TestMine(t *testing.T) { locktest.Run(t, locktest.Rig{Open: open, Start: start, MinTTL: 100 * time.Millisecond}) }
package locktest

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/lock"
)

// Rig says how to open a strategy, what to expect of it, and how to break its server.
type Rig struct {
	// Open returns a strategy for the server at url and for TTLs of up to longest. It has a client of its own, with
	// timeouts of at most a second, which is closed with the test. The suite calls Open also in processes that it
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
	// InProcess means that only this process sees the names: there is no server, and no hook to break it.
	InProcess bool
	// Missing says why a hook is missing, by its name: StartSkewed, Link, Partition, Delay, Cut, LoseReply, HoldRequest,
	// Freeze, Flush or Kill. Tests that need the hook are skipped.
	Missing map[string]string
}

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
		if r.InProcess {
			reason = "the names are within this process"
		}
		switch {
		case hooks[hook] && reason != "":
			t.Errorf("the hook %s exists, but Missing says: %s", hook, reason)
		case !hooks[hook] && reason == "":
			t.Errorf("the hook %s is missing, and Missing does not say why", hook)
		case !hooks[hook]:
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
}

// Run tests a strategy. It must not run in parallel with other tests, because a busy machine distorts TTLs, and the top-
// level test must do nothing else, because the suite runs it again in processes that hold a name and fail.
func Run(t *testing.T, rig Rig) {
	if isChild() {
		rig.runChild(t)
		return
	}
	s := &suite{rig, rig.Start(t)}
	there := rig.hooks(t, s.Server)
	rig.checkHooks(t, there)
	_, there["Watcher"] = s.open(t).(lock.Watcher)
	_, there["Admin"] = s.open(t).(lock.Admin)
	there["Processes"], there["TTL"] = !rig.InProcess, !rig.EndsWithConnection
	sensible := func(tests ...[]test) []test {
		return slices.DeleteFunc(slices.Concat(tests...), func(c test) bool {
			return slices.ContainsFunc(strings.Fields(c.needs), func(what string) bool { return !there[what] })
		})
	}
	t.Run("Together", func(t *testing.T) {
		s.runTogether(t, sensible(partitions, processes, clocks, leaders, holds, cuts, doTests, basics, names, admin), sensible(servers))
	})
	for _, c := range sensible(contention) {
		t.Run(c.name, func(t *testing.T) { c.run(s, t) })
	}
}

// maxTogether is how many tests run concurrently. The flag -parallel is not used: it counts processors, and these tests
// mostly wait.
const maxTogether = 6

// runTogether runs tests that mostly wait and, concurrently but one after another, the tests that break a server.
func (s *suite) runTogether(t *testing.T, tests, breaking []test) {
	var running sync.WaitGroup
	if len(breaking) > 0 {
		victim := &suite{s.Rig, s.Rig.Start(t)}
		running.Go(func() {
			for _, c := range breaking {
				t.Run(c.name, func(t *testing.T) { c.run(victim, t) })
			}
		})
	}
	room := make(chan bool, maxTogether)
	for _, c := range tests {
		room <- true
		running.Go(func() {
			t.Run(c.name, func(t *testing.T) { c.run(s, t) })
			<-room
		})
	}
	running.Wait()
}
