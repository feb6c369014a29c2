// Package locktest is what every strategy of package lock has to pass, on its real server and while that is broken in
// the ways servers break. A provider's author fills a [Rig] and calls [Run]:
//
//	func TestMine(t *testing.T) { locktest.Run(t, locktest.Rig{Open: open, Start: start, Brief: 100 * time.Millisecond}) }
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

// Rig is what the suite has to know of a provider, and how it breaks its server.
type Rig struct {
	// Open returns a strategy for the server at url and for TTLs of up to longest, with a client of its own that is closed
	// with the test. Timeouts of that client should be a second or less. A process that the suite starts calls it too.
	Open func(t testing.TB, url string, longest time.Duration) lock.Strategy
	// Start starts a server that ends with the test.
	Start func(t testing.TB) Server
	// StartSkewed is Start with a server whose clock is ahead by offset, which may be negative.
	StartSkewed func(t testing.TB, offset time.Duration) Server

	// MinTTL is the shortest TTL that the strategy keeps; all others are multiples of it. 100 ms is short enough.
	MinTTL time.Duration
	// EndsWithConnection says that a name ends with its holder's connection, besides by its TTL.
	EndsWithConnection bool
	// Volatile says that a server that was killed comes back without its leases.
	Volatile bool
	// HidesHolder says that a refusal tells neither who has the name nor for how long.
	HidesHolder bool
	// MayRefuseAll says that of several who ask at the same time all may be refused.
	MayRefuseAll bool
	// InProcess says that only this process sees the names: there is no server, and none of the hooks that break one.
	InProcess bool
	// Missing says why there is no hook: by its name (Skewed, Link, Partition, Delay, Cut, LoseReply, Hold, Freeze, Flush, Kill). What
	// takes the hook is then not run.
	Missing map[string]string
}

// Server is a running server, and the ways to break it.
type Server struct {
	URL string
	// Link makes another way to the server, for one client, that can be broken without harm to the others. It ends with
	// the test.
	Link func(t testing.TB) Link
	// Freeze stops the server without closing its connections; Thaw lets it go on.
	Freeze, Thaw func()
	// Flush makes it forget all it knows.
	Flush func()
	// Kill ends it as kill -9 does, and Start starts it again at the same URL.
	Kill, Start func()
}

// Link is a way to a server that can be broken.
type Link struct {
	URL string
	// Partition swallows everything in both directions while it is on, without closing a connection.
	Partition func(on bool)
	// Delay makes each answer late by d; 0 ends that.
	Delay func(d time.Duration)
	// Cut closes the connections that there are.
	Cut func()
	// LoseReply loses the reply to the next request of that kind about name: the server has done what was asked, and the
	// client sees its connection close. The channel is closed when that has happened.
	LoseReply func(name string, request Request) <-chan struct{}
	// HoldRequest keeps the next request of that kind about name until release; reached is closed when it has come. It goes on to
	// the server then even if the client has hung up.
	HoldRequest func(name string, request Request) (reached <-chan struct{}, release func())
}

// Request is a kind of request to a server.
type Request string

// The requests.
const (
	Acquire Request = "acquire"
	Renew   Request = "renew"
	Release Request = "release"
)

// hooks are those that a rig has, by name.
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

// checkHooks fails the test for a hook that is missing without a reason, or that is there in spite of one.
func (r Rig) checkHooks(t testing.TB, hooks map[string]bool) {
	for _, hook := range slices.Sorted(maps.Keys(hooks)) {
		reason := r.Missing[hook]
		if r.InProcess {
			reason = "names are this process's own"
		}
		switch {
		case hooks[hook] && reason != "":
			t.Errorf("there is a %s, and a reason why there is none: %s", hook, reason)
		case !hooks[hook] && reason == "":
			t.Errorf("there is no %s, and Lacks does not say why", hook)
		case !hooks[hook]:
			t.Logf("not tested, as there is no %s: %s", hook, reason)
		}
	}
	for hook := range r.Missing {
		if _, known := hooks[hook]; !known {
			t.Errorf("Lacks names %q, which is no hook", hook)
		}
	}
}

// suite is a rig with a server that its tests share.
type suite struct {
	Rig
	Server
}

type test struct {
	name string
	run  func(*suite, *testing.T)
	// needs are the hooks, and what else there must be, without which the test makes no sense.
	needs string
}

// Run tests a provider, beside no other: what a TTL does is to be seen, and not what a busy machine does. It is all that a top-level test does: the processes that hold a
// name and fail run the same test again.
func Run(t *testing.T, rig Rig) {
	if isChild() {
		rig.runChild(t)
		return
	}
	s := &suite{rig, rig.Start(t)}
	there := rig.hooks(t, s.Server)
	rig.checkHooks(t, there)
	_, there["Watcher"] = s.open(t).(lock.Watcher)
	_, there["Registry"] = s.open(t).(lock.Registry)
	there["Processes"], there["TTL"] = !rig.InProcess, !rig.EndsWithConnection
	sensible := func(tests ...[]test) []test {
		return slices.DeleteFunc(slices.Concat(tests...), func(c test) bool {
			return slices.ContainsFunc(strings.Fields(c.needs), func(what string) bool { return !there[what] })
		})
	}
	t.Run("Together", func(t *testing.T) {
		s.runTogether(t, sensible(partitions, processes, clocks, leaders, holds, cuts, does, basics, names, registry), sensible(servers))
	})
	for _, c := range sensible(contention) {
		t.Run(c.name, func(t *testing.T) { c.run(s, t) })
	}
}

// maxTogether is how many tests run at once. -parallel counts processors, and waiting takes none.
const maxTogether = 6

// runTogether runs tests that mostly wait, and beside them, one after another, those that break a server.
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
