package locks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"

	"github.com/redis/go-redis/v9"
)

// side is one of the two renewed locks that are compared. Both keep a name for ttl, and renew it every third of that.
type side struct {
	name    string
	start   func(t *testing.T, addr string) *peer
	key     func(name string) string
	channel func(name string) string // on which the server tells waiters of a release
	a, b    *peer
}

func newSides() [2]*side {
	prefix := keysPrefix + ":" + keysEnvironment + ":"
	return [2]*side{
		{
			name:    "FirstTap",
			start:   func(t *testing.T, addr string) *peer { return startGo(t, "redis", addr) },
			key:     func(name string) string { return prefix + name },
			channel: func(name string) string { return prefix + name + ":freed" },
		},
		{
			name: "Redisson",
			start: func(t *testing.T, addr string) *peer {
				return startJava(t, "redisson", addr, strconv.FormatInt(ttl.Milliseconds(), 10))
			},
			key:     func(name string) string { return name },
			channel: func(name string) string { return "redisson_lock__channel:{" + name + "}" },
		},
	}
}

// pair is both sides on one Redis, and the table of their figures.
type pair struct {
	sides [2]*side
	addr  string
	redis redis.UniversalClient
	out   *table
}

// renewedLock is the command for a lock that is renewed until it is unlocked, within a wait in milliseconds.
const renewedLock = "lock %s 0 0 %d"

// TestRedissonSideBySide prints what Redisson's RLock with its watchdog and FirstTap's redis strategy with Renewed cost on one Redis, in
// turns. It fails if a name has two holders.
func TestRedissonSideBySide(t *testing.T) {
	classPath(t)
	server := servertest.StartRedis(t)
	p := &pair{sides: newSides(), addr: server.Addr(), redis: strictClient(t, server.Addr())}
	for _, s := range p.sides {
		s.a, s.b = s.start(t, server.Addr()), s.start(t, server.Addr())
		s.a.must(t, "took", "turns 10000 warm") // a JVM compiles what runs often
		s.b.must(t, "took", "turns 1000 warm")
	}
	p.out = newTable(fmt.Sprintf("Redisson's RLock with its watchdog (tryLock without a lease time) beside FirstTap's redis strategy with "+
		"Renewed, on one Redis, in turns; both keep a name for %s and renew it every %s. Redisson's keys are another lock: the two do not "+
		"exclude each other. Median (quartiles); the ratio is Redisson's to FirstTap's of the same round.", ttl, ttl/3),
		"", "FirstTap", "Redisson", "ratio", "rounds")
	p.turns(t)
	p.contenders(t)
	p.handOver(t)
	p.kills(t)
	p.out.print()
	p.commands(t)
	p.renewals(t)
}

// row adds a measure of both sides, by round.
func (p *pair) row(what string, digits int, values [2][]float64) {
	var ratios []float64
	for round, ours := range values[0] {
		ratios = append(ratios, values[1][round]/ours)
	}
	p.out.row(what, middle(values[0], digits), middle(values[1], digits), middle(ratios, 2), strconv.Itoa(len(ratios)))
}

// inTurns calls measure for both sides in each round; the side that begins changes.
func (p *pair) inTurns(rounds int, measure func(round int, s *side) float64) (values [2][]float64) {
	for round := range rounds {
		for k := range p.sides {
			i := (k + round) % len(p.sides)
			values[i] = append(values[i], measure(round, p.sides[i]))
		}
	}
	return values
}

func (p *pair) turns(t *testing.T) {
	const times = 300
	p.row("acquire and release one name, us", 0, p.inTurns(41, func(_ int, s *side) float64 {
		return float64(s.a.must(t, "took", "turns %d turn", times)[0]) / times
	}))
}

// contenders are drivers of 1,000 dispatches: all ask for each name, one gets it, and keeps it until all have asked for all.
func (p *pair) contenders(t *testing.T) {
	const names, contenders, warmUps = 1000, 30, 2
	values := p.inTurns(warmUps+9, func(round int, s *side) float64 {
		s.a.must(t, "ready", "race race-%d- %d %d 0 0", round, names, contenders)
		won := s.a.must(t, "won", "go")
		if won[0] != names {
			t.Errorf("%s: %d names had %d holders", s.name, names, won[0])
		}
		return float64(won[1]) / names
	})
	for i := range values {
		values[i] = values[i][warmUps:]
	}
	p.row(fmt.Sprintf("a name that %d contenders of a process ask for, one gets and releases (of %d names), us", contenders, names), 0, values)
}

// handOver measures from the moment before a process calls unlock to the one after another's call of lock has returned.
func (p *pair) handOver(t *testing.T) {
	const warmUps = 20
	values := p.inTurns(warmUps+101, func(round int, s *side) float64 {
		name := fmt.Sprintf("handed-%d", round)
		s.a.must(t, "held", renewedLock, name, 0)
		p.await(t, s, name)
		from := s.a.must(t, "free", "unlock %s", name)[0]
		return float64(p.awaited(t, s, name) - from)
	})
	for i := range values {
		values[i] = values[i][warmUps:]
	}
	p.row("a release until the waiter of another process has the name, us", 0, values)
}

// await lets b wait for a name, and returns when the server has its subscription and b is quiet.
func (p *pair) await(t *testing.T, s *side, name string) {
	t.Helper()
	s.b.tell(t, renewedLock, name, testkit.Patience.Milliseconds())
	testkit.Eventually(t, s.name+" waits", func() bool {
		subscribers, err := p.redis.PubSubNumSub(t.Context(), s.channel(name)).Result()
		return err == nil && subscribers[s.channel(name)] > 0
	})
	<-time.After(20 * time.Millisecond)
}

// awaited returns when b got the name that it waited for, and releases it.
func (p *pair) awaited(t *testing.T, s *side, name string) (at int64) {
	t.Helper()
	word, numbers := s.b.answer(t)
	if word != "held" {
		t.Fatalf("%s answers %q to a waiter", s.name, word)
	}
	s.b.must(t, "free", "unlock %s", name)
	return numbers[0]
}

// kills ends the holder's process of both sides at the same time, by SIGKILL, at moments that are spread over the time between two
// renewals.
func (p *pair) kills(t *testing.T) {
	const rounds = 9
	var killed, late [2][]float64
	for round := range rounds {
		name := fmt.Sprintf("killed-%d", round)
		var holders [2]*peer
		for i, s := range p.sides {
			holders[i] = s.start(t, p.addr)
		}
		for i, s := range p.sides {
			holders[i].must(t, "held", renewedLock, name, 0)
			p.await(t, s, name)
		}
		<-time.After(ttl/2 + ttl/3*time.Duration(round)/rounds)
		var at, end [2]int64
		for i, s := range p.sides {
			left, err := p.redis.PTTL(t.Context(), s.key(name)).Result()
			if err != nil || left <= 0 {
				t.Fatalf("%s: what is left of a lease that is renewed: %s, %v", s.name, left, err)
			}
			at[i] = time.Now().UnixMicro()
			end[i] = at[i] + left.Microseconds()
			_ = holders[i].cmd.Process.Kill()
		}
		for i, s := range p.sides {
			holders[i].kill() // waits for it
			got := p.awaited(t, s, name)
			killed[i] = append(killed[i], float64(got-at[i])/1000)
			late[i] = append(late[i], float64(got-end[i])/1000)
		}
	}
	p.row("a kill -9 of the holder until the waiter has the name, ms", 0, killed)
	p.row("of that, after the server's key has ended, ms", 1, late)
}

// commands prints how many commands the clients send, and which ones the server runs for them, those of scripts too.
func (p *pair) commands(t *testing.T) {
	out := newTable("Commands for a name that was held before: what the clients send, and what the server runs for that, scripts' calls too "+
		"(INFO commandstats). To wait is to be refused, to subscribe, to be woken by the release and to acquire.",
		"", "FirstTap sends", "runs", "Redisson sends", "runs")
	steps := []string{"acquire", "be refused", "release", "wait, with the holder's release"}
	ours, theirs := p.count(t, p.sides[0], len(steps)), p.count(t, p.sides[1], len(steps))
	for k, step := range steps {
		out.row(step, whole(ours[k].sent), ours[k].ran(), whole(theirs[k].sent), theirs[k].ran())
	}
	out.print()
}

const countedTimes = 15

// counted is what a step cost, countedTimes times.
type counted struct {
	sent  []float64
	calls map[string]int64
}

// ran are the calls of one time.
func (c counted) ran() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.calls)) {
		switch n := (c.calls[name] + countedTimes/2) / countedTimes; {
		case n == 1:
			all = append(all, name)
		case n > 1:
			all = append(all, fmt.Sprintf("%d %s", n, name))
		}
	}
	return strings.Join(all, ", ")
}

// count takes the steps with peers whose commands are counted on the way.
func (p *pair) count(t *testing.T, s *side, steps int) []counted {
	var commands atomic.Int64
	via := startTap(t, p.addr, redisRequest, &commands)
	s = &side{name: s.name, channel: s.channel, a: s.start(t, via), b: s.start(t, via)}
	found := make([]counted, steps)
	for k := range found {
		found[k].calls = map[string]int64{}
	}
	const warmUps = 3
	for round := range warmUps + countedTimes {
		sent, calls := settled(&commands), p.calls(t)
		step := 0
		count := func() {
			n, now := since(&commands, &sent), p.calls(t)
			if round >= warmUps {
				found[step].sent = append(found[step].sent, n)
				for name, times := range now {
					found[step].calls[name] += times - calls[name]
				}
			}
			calls = now
			step++
		}
		s.a.must(t, "held", renewedLock, "counted", 0)
		count()
		s.b.must(t, "busy", renewedLock, "counted", 0)
		count()
		s.a.must(t, "free", "unlock counted")
		count()
		s.a.must(t, "held", renewedLock, "counted", 0)
		sent, calls = settled(&commands), p.calls(t)
		p.await(t, s, "counted")
		s.a.must(t, "free", "unlock counted")
		if word, _ := s.b.answer(t); word != "held" {
			t.Fatalf("%s answers %q to a waiter", s.name, word)
		}
		count()
		s.b.must(t, "free", "unlock counted")
	}
	return found
}

// calls are the server's counts of commands, without those that this program sends.
func (p *pair) calls(t *testing.T) map[string]int64 {
	t.Helper()
	info, err := p.redis.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for name, stats := range info["Commandstats"] {
		name = strings.TrimPrefix(name, "cmdstat_")
		if name == "info" || strings.HasPrefix(name, "pubsub") {
			continue
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		if all[name], err = strconv.ParseInt(number, 10, 64); err != nil {
			t.Fatalf("%s: %s", name, stats)
		}
	}
	return all
}

// renewals prints what it takes to renew many names of a process once.
func (p *pair) renewals(t *testing.T) {
	out := newTable(fmt.Sprintf("%d names of one process, each renewed once, measured over %s. Reads are the server's read events.",
		leases, watch), "", "commands", "reads", "server CPU ms")
	for _, s := range p.sides {
		var commands atomic.Int64
		holder := s.start(t, startTap(t, p.addr, redisRequest, &commands))
		for n := range leases {
			holder.must(t, "held", renewedLock, fmt.Sprintf("renewed-%d", n), 0)
		}
		<-time.After(ttl) // each is renewed once
		before, sent := usage(t, p.redis), commands.Load()
		<-time.After(watch)
		after, times := usage(t, p.redis), float64(watch/(ttl/3))
		out.row(s.name, fmt.Sprintf("%.0f", float64(commands.Load()-sent)/times), fmt.Sprintf("%.0f", (after.reads-before.reads-1)/times),
			fmt.Sprintf("%.1f", (after.cpu-before.cpu)*1000/times))
		holder.kill()
	}
	out.print()
}

// TestRedissonIsAnotherLock holds a name by both at once: what one of them refuses says nothing about the other.
func TestRedissonIsAnotherLock(t *testing.T) {
	classPath(t)
	server := servertest.StartRedis(t)
	for _, s := range newSides() {
		s.start(t, server.Addr()).must(t, "held", renewedLock, "name", 0)
	}
}
