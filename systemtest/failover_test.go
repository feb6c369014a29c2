package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// settled is how long a call may fail after a move, on a busy machine.
const settled = 5 * time.Minute

// deployment is servers that two instances run on, and what fails there while drivers tap.
type deployment struct {
	settings [2][]string // of each instance, beside its timeouts
	faults   []fault
	// current is a URL of the database that has every committed claim.
	current func() string
	once    bool // the faults can't be repeated
	loses   bool // acknowledged claims are lost
	// remark checks what is special to the deployment in the end, and returns more to print; nil for nothing.
	remark func() string
}

// fault is a failure. strike causes it, and returns when another server has taken over, or when the one that failed works again. mend
// brings the servers back to where they were.
type fault struct {
	name   string
	strike func() (mend func())
}

// both are the settings of two instances that have the same ones.
func both(settings ...string) [2][]string { return [2][]string{settings, settings} }

// Each deployment under each of its faults, while drivers race and winners withdraw: no round is won twice, no response is stale, and no
// win is lost, but for an asynchronous replica.
func TestFailovers(t *testing.T) {
	testkit.OnlyInAll(t)
	once := make(chan time.Time)
	close(once)
	failovers(t, 30, time.Second, func() <-chan time.Time { return once })
}

// failovers strikes each deployment with each of its faults, again until over has a value, and prints the table of
// docs/high-availability.md. Before, during and after a fault there are at least enough wins. After far more wins, crews rest after
// each dispatch, as startCrews says.
func failovers(t *testing.T, enough int, rest time.Duration, over func() <-chan time.Time) {
	for _, d := range []struct {
		name  string
		start func(tr *trial) deployment
	}{
		{"one server of each kind", oneOfEach},
		{"Redis Sentinel", onSentinel},
		{"Redis Sentinel, on a network that is cut", onCutSentinel},
		{"Redis Cluster", onCluster},
		{"Redis Cluster, on a network that is cut", onCutCluster},
		{"MySQL group replication", onGroup},
		{"MySQL group replication, on a network that is cut", onCutGroup},
		{"three zones, with MySQL group replication and Redis Sentinel", onZones},
		{"MariaDB Galera", onGalera},
		{"MariaDB Galera, on a network that is cut", onCutGalera},
		{"MariaDB Galera, an instance on each of two servers", onTwoOfGalera},
		{"semi-synchronous replica", onSemiSynchronous},
		{"asynchronous replica", onAsynchronous},
		{"a quorum of three servers of Redis", onQuorum},
		{"FCM", onFCM},
	} {
		t.Run(d.name, func(t *testing.T) { newTrial(t, d.start).run(enough, rest, over()) })
	}
}

// trial is a deployment with two instances and drivers at work.
type trial struct {
	*history
	deployment
	t *testing.T

	mu      sync.Mutex  // guards the fields below
	running []*Instance // those that drivers use
	started []*Instance // all
}

func newTrial(t *testing.T, start func(tr *trial) deployment) *trial {
	t.Helper()
	tr := &trial{t: t, history: &history{answers: map[string]map[string]int{}}}
	tr.deployment = start(tr)
	for n := range tr.settings {
		i := tr.start(n)
		tr.mu.Lock()
		tr.running = append(tr.running, i)
		tr.mu.Unlock()
	}
	return tr
}

// start starts an instance whose timeouts are those of production.
func (tr *trial) start(n int) *Instance {
	i := Start(tr.t, append([]string{QuickRedis, QuickClaims}, tr.settings[n]...)...)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.started = append(tr.started, i)
	return i
}

func (tr *trial) instances() []*Instance {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.running)
}

// logged counts how often the text is in the instances' logs.
func (tr *trial) logged(text string) (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, i := range tr.started {
		n += i.log.Count(text)
	}
	return n
}

// killInstance kills the first instance. mend starts another.
func (tr *trial) killInstance() (mend func()) {
	tr.mu.Lock()
	first := tr.running[0]
	tr.running = tr.running[1:]
	tr.mu.Unlock()
	first.Kill()
	return func() {
		another := tr.start(0)
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.running = append([]*Instance{another}, tr.running...)
	}
}

// outage is what drivers have seen of one fault, or of none.
type outage struct {
	figures
	name  string
	still time.Duration // the longest time without a win
}

func (tr *trial) run(enough int, rest time.Duration, over <-chan time.Time) {
	t := tr.t
	var seen []outage
	since := time.Now()
	tr.want(enough)
	stop := startCrews(tr.history, tr.instances, rest)
	defer func() {
		stop()
		for _, what := range tr.untrue[:min(len(tr.untrue), 20)] {
			if !tr.loses {
				t.Error(what)
			}
		}
	}()
	wins := func(what string) {
		t.Helper()
		tr.await(t, what, enough)
	}
	wins("the drivers are at work")
	for {
		for _, f := range tr.faults {
			seen = append(seen, outage{tr.next(), "none", tr.standstill(since)})
			struck := time.Now()
			mend := f.strike()
			wins("drivers win after: " + f.name)
			mend()
			wins("drivers win once it is mended: " + f.name)
			seen = append(seen, outage{tr.next(), f.name, tr.standstill(struck)})
			since = time.Now()
			wins("drivers win long after: " + f.name)
		}
		select {
		case <-over:
		default:
			if !tr.once {
				continue
			}
		}
		break
	}
	stop()
	tr.check(seen)
}

// check compares the history with the database, and prints the figures.
func (tr *trial) check(seen []outage) {
	t, db, lost := tr.t, OpenDatabase(tr.t, tr.current()), 0
	winners := map[string]string{}
	for _, w := range tr.wins {
		round := fmt.Sprintf("%s round %d", w.dispatch, w.round)
		if other, ok := winners[round]; ok {
			tr.mustBeTrue(other == w.driver, "%s was won twice", round)
		}
		winners[round] = w.driver
		n := db.Count("claims WHERE id=? AND dispatch_id=? AND round=? AND driver_id=?", w.claim, w.dispatch, w.round, w.driver)
		if n == 0 {
			lost++
		}
		tr.mustBeTrue(n == 1, "%s: the driver got SUCCESS, and %d claims are stored", round, n)
	}
	if lost > 0 { // it takes an instance two looks at the database, a second apart
		testkit.Eventually(t, "an instance notices that acknowledged claims are lost", func() bool { return tr.logged("ALERT") > 0 })
	}
	alerts := tr.logged("ALERT")
	if !tr.loses && alerts > 0 {
		t.Error("an alert, although nothing is lost")
	}
	if tr.remark != nil {
		t.Log(tr.remark())
	}
	var table strings.Builder
	names := []string{"none"}
	for _, f := range tr.faults {
		names = append(names, f.name)
	}
	for _, name := range names {
		table.WriteString(row(name, seen))
	}
	t.Logf("%d wins, %d of them lost, %d alerts, %d untrue responses, answered with %v\n"+
		"| fault | times | taps | wins | unknown | longest answer | longest time without a win |\n|---|---|---|---|---|---|---|\n%s",
		len(tr.wins), lost, alerts, len(tr.untrue), tr.answers, &table) // maps are printed in order
}

// row is the line of the fault in the table.
func row(name string, seen []outage) string {
	var sum figures
	var still []time.Duration
	for _, o := range seen {
		if o.name == name {
			sum.taps, sum.unsure, sum.wins = sum.taps+o.taps, sum.unsure+o.unsure, sum.wins+o.wins
			sum.longest = max(sum.longest, o.longest)
			still = append(still, o.still)
		}
	}
	slices.Sort(still)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %s | %s (median %s) |\n", name, len(still), sum.taps, sum.wins, sum.unsure,
		seconds(sum.longest), seconds(still[len(still)-1]), seconds(still[len(still)/2]))
}
