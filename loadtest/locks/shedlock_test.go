package locks

import (
	"fmt"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// shared is a store of locks that ShedLock in Java and FirstTap share, each with its own library.
type shared struct {
	startGo   func(t *testing.T) *peer
	startJava func(t *testing.T) *peer
	now       func(t *testing.T) int64              // the server's clock, in microseconds
	end       func(t *testing.T, name string) int64 // until when the server keeps a name held, by that clock; 0 if it never was
}

// rounding is how much earlier a hold may end: ShedLock and Redis have milliseconds, and a client rounds down what is left.
const rounding = 2 * time.Millisecond

// Java's ShedLock and FirstTap, on the table shedlock and on Redis, are one lock: neither gets a name before the other's hold has ended by
// the server's clock, and each gets it then; the longest and the shortest hold count both ways; a holder that is killed, JVM or Go process,
// keeps its name for the longest hold and no longer; an overrun holder that unlocks late frees nothing.
func TestShedLockInJavaIsTheSameLock(t *testing.T) {
	classPath(t)
	s := startSite(t)
	t.Run("table", sharedTable(t, s).exclude)
	t.Run("redis", sharedRedis(t, s).exclude)
}

func (s shared) exclude(t *testing.T) {
	java, golang := s.startJava(t), s.startGo(t)
	t.Run("Java holds", func(t *testing.T) { s.excludeOther(t, java, golang, s.startJava) })
	t.Run("Go holds", func(t *testing.T) { s.excludeOther(t, golang, java, s.startGo) })
	t.Run("race", func(t *testing.T) { s.race(t, java, golang) })
}

// excludeOther checks what holder's locks are to the other. restart starts another process like holder.
func (s shared) excludeOther(t *testing.T, holder, other *peer, restart func(*testing.T) *peer) {
	const minute = 60_000
	t.Run("until it is unlocked", func(t *testing.T) {
		for round := range 3 { // the first round makes the name known to the server
			holder.must(t, "held", "lock unlocked %d 0 0", minute)
			other.must(t, "busy", "lock unlocked %d 0 0", minute)
			holder.must(t, "free", "unlock unlocked")
			other.must(t, "held", "lock unlocked %d 0 0", minute)
			holder.must(t, "busy", "lock unlocked %d 0 0", minute)
			other.must(t, "free", "unlock unlocked")
			t.Logf("round %d: each was refused while the other held the name", round)
		}
	})
	t.Run("longest hold", func(t *testing.T) {
		const most = 2 * time.Second
		end := s.hold(t, holder, "longest", most, 0)
		s.refusedUntil(t, other, "longest", end)
		if word := holder.ask(t, "unlock longest"); word != "free" && word != "lost" {
			t.Errorf("late unlock: %s", word)
		}
		holder.must(t, "busy", "lock longest %d 0 0", minute)
		other.must(t, "free", "unlock longest")
	})
	t.Run("killed", func(t *testing.T) {
		const most = 2 * time.Second
		killed := restart(t)
		end := s.hold(t, killed, "killed", most, 0)
		killed.kill()
		if after := s.end(t, "killed"); after != end {
			t.Errorf("the kill moved the end by %d us", after-end)
		}
		s.refusedUntil(t, other, "killed", end)
		other.must(t, "free", "unlock killed")
	})
	t.Run("shortest hold", func(t *testing.T) {
		const least = 2 * time.Second
		begun := s.now(t)
		s.hold(t, holder, "shortest", time.Minute, least) // other waits for less than that below
		holder.must(t, "free", "unlock shortest")
		end := s.end(t, "shortest")
		if held := micro(end - begun); held < least-rounding {
			t.Errorf("held for %s after an early unlock, want %s at least", held, least)
		}
		s.refusedUntil(t, other, "shortest", end)
		other.must(t, "free", "unlock shortest")
	})
}

// hold makes the peer hold the name, and returns when that ends if nobody unlocks it: the longest hold after the server was asked.
func (s shared) hold(t *testing.T, p *peer, name string, most, least time.Duration) (end int64) {
	t.Helper()
	before := s.now(t)
	p.must(t, "held", "lock %s %d %d 0", name, most.Milliseconds(), least.Milliseconds())
	after := s.now(t)
	end = s.end(t, name)
	if first, last := micro(end-before), micro(end-after); first < most-rounding || last > most {
		t.Errorf("%s holds %s for %s to %s, want %s", p.name, name, last, first, most)
	}
	return end
}

// refusedUntil asks until the peer holds the name. No answer that the server gave before end may say so.
func (s shared) refusedUntil(t *testing.T, p *peer, name string, end int64) {
	t.Helper()
	refused := 0
	testkit.Eventually(t, p.name+" gets "+name, func() bool {
		if p.ask(t, "lock %s 60000 0 0", name) == "busy" {
			refused++
			return false
		}
		return true
	})
	late := micro(s.now(t) - end)
	if late < 0 {
		t.Errorf("%s got %s %s before the other's hold had ended", p.name, name, -late)
	}
	t.Logf("%s was refused %d times, and had %s %s after the other's hold had ended", p.name, refused, name, late)
}

// race lets contenders of both ask for the same names. The shortest hold keeps each name for all of them.
func (s shared) race(t *testing.T, java, golang *peer) {
	const rounds, names, contenders, minute = 3, 300, 15, 60_000
	for round := range rounds {
		for _, p := range []*peer{java, golang} {
			p.must(t, "ready", "race raced-%d- %d %d %d %d", round, names, contenders, minute, minute)
		}
		java.tell(t, "go")
		first := fmt.Sprintf("raced-%d-0", round)
		testkit.Eventually(t, "Java has begun", func() bool { return s.end(t, first) > 0 }) // or Go, which is faster, would have all names
		golang.tell(t, "go")
		_, ofJava := java.answer(t)
		_, ofGo := golang.answer(t)
		if ofJava[0]+ofGo[0] != names {
			t.Errorf("%d names were won %d times by Java and %d times by Go", names, ofJava[0], ofGo[0])
		}
		t.Logf("of %d names %d contenders of Java won %d, and as many of Go %d", names, contenders, ofJava[0], ofGo[0])
	}
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func sharedTable(t *testing.T, s site) shared {
	db := s.open(t)
	number := func(t *testing.T, query string, args ...any) (n int64) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return shared{
		startGo:   func(t *testing.T) *peer { return startGo(t, "table", s.mysql.FormatDSN()) },
		startJava: func(t *testing.T) *peer { return startJava(t, "table", jdbc(s)) },
		now: func(t *testing.T) int64 {
			return number(t, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
		},
		end: func(t *testing.T, name string) int64 {
			return number(t, "SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until)), 0) FROM shedlock WHERE name = ?", name)
		},
	}
}

func jdbc(s site) string {
	const settings = "sslMode=disable&maxPoolSize=16" // the tests' server has no TLS
	return fmt.Sprintf("jdbc:mariadb://%s/%s?user=%s&password=%s&%s", s.mysql.Addr, s.mysql.DBName, s.mysql.User, s.mysql.Passwd, settings)
}

func sharedRedis(t *testing.T, s site) shared {
	client := strictClient(t, s.redis[0])
	return shared{
		startGo:   func(t *testing.T) *peer { return startGo(t, "redis", s.redis[0]) },
		startJava: func(t *testing.T) *peer { return startJava(t, "redis", s.redis[0], keysEnvironment) },
		now: func(t *testing.T) int64 {
			now, err := client.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			return now.UnixMicro()
		},
		end: func(t *testing.T, name string) int64 {
			end, err := client.PExpireTime(t.Context(), keysPrefix+":"+keysEnvironment+":"+name).Result()
			if err != nil {
				t.Fatal(err)
			}
			return max(end.Microseconds(), 0)
		},
	}
}

// ShedLock's Redis provider as it comes, without safeUpdate, frees or overwrites a name that another owner has when it unlocks late. That one
// learns of it: its lease is lost. So docs/locks.md says to set safeUpdate.
func TestShedLockWithoutSafeUpdate(t *testing.T) {
	classPath(t)
	s := startSite(t)
	java := startJava(t, "redis-default", s.redis[0], keysEnvironment)
	golang := startGo(t, "redis", s.redis[0])
	java.must(t, "held", "lock overrun 200 0 0")
	testkit.Eventually(t, "Go gets the name", func() bool { return golang.ask(t, "lock overrun 60000 0 0") == "held" })
	java.must(t, "free", "unlock overrun")
	golang.must(t, "lost", "unlock overrun")
}
