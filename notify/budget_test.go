package notify_test

import (
	"context"
	"database/sql"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/repository/pushes"

	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/notify"
	"firsttap/repository/database"
	"firsttap/service"
)

// costs are what a step of a dispatch's life costs.
type costs struct {
	Statements int // without those that begin or end a transaction
	Commits    int // of transactions, and of the procedure that claims; a statement outside a transaction is not counted again
	Rows       int // inserted, updated and deleted
	Redis      int // commands
	Allocs     int // of the process
}

// allows reports whether the budget is enough for a step that costs so much.
func (most costs) allows(c costs) bool {
	return c.Statements <= most.Statements && c.Commits == most.Commits && c.Rows == most.Rows && c.Redis == most.Redis && c.Allocs <= most.Allocs
}

// budgets are what each step costs, as the test logs it, and at most so many statements and allocations, with a tenth more of the
// latter. Two rows of "offered" are the words of the address, and 30 of "won" are the taps. A claim is a procedure's call on a server, with
// a read before it unless the winner is known, and a transaction in SQLite. The results of pushes and the completion of their event are one
// transaction.
var budgets = map[string]map[string]costs{
	servertest.SQLite: {
		"offered": {Statements: 11, Commits: 2, Rows: 65, Allocs: 8_500}, "won": {Statements: 16, Commits: 3, Rows: 94, Allocs: 9_500},
		"started": {Statements: 7, Commits: 1, Rows: 3, Allocs: 700}, "completed": {Statements: 6, Commits: 1, Rows: 3, Allocs: 600},
	},
	servertest.MariaDB: onServer,
	servertest.MySQL:   onServer,
}

var onServer = map[string]costs{
	"offered": {Statements: 11, Commits: 2, Rows: 65, Allocs: 8_500}, "won": {Statements: 13, Commits: 3, Rows: 94, Redis: 4, Allocs: 9_500},
	"started": {Statements: 7, Commits: 1, Rows: 3, Allocs: 800}, "completed": {Statements: 6, Commits: 1, Rows: 3, Allocs: 650},
}

// steps are those of a dispatch's life.
var steps = []string{"offered", "won", "started", "completed"}

// The life of a dispatch stays within its budget: it is created and 30 drivers are told; all tap at once, one wins, and all are told; the
// winner starts the work and completes it. What an instance does at any time is not part of it: polls, probes and verifications.
func TestBudgetOfADispatch(t *testing.T) { // not parallel, as it counts the allocations of the process
	onDatabases(t, 30, func(t *testing.T, o *office) {
		l := newLife(t, o)
		l.live() // fills the caches
		l.mustCost(budgets[o.kind])
	})
}

// mustCost fails the test unless each step of a dispatch's life stays within its budget.
func (l *life) mustCost(budget map[string]costs) {
	l.t.Helper()
	spent := map[string]costs{}
	over := func(step string) bool { return !budget[step].allows(spent[step]) }
	// While the machine stands still, the relay releases its pushes and leases them again, a pool dials, and a poll is due. A step that
	// costs more in one life is measured in the next.
	for lives := 0; lives < 5 && slices.ContainsFunc(steps, over); lives++ {
		for step, cost := range l.live() {
			if over(step) {
				spent[step] = cost
			}
		}
	}
	for _, step := range steps {
		l.t.Logf("%d phones, %s: %+v", len(l.cars), step, spent[step])
		if over(step) {
			l.t.Errorf("%d phones, %s: costs %+v, not %+v; its statements are\n%s", len(l.cars), step, spent[step], budget[step], strings.Join(l.sent[step], "\n"))
		}
	}
}

// life is that of dispatches on one instance, with a count of what they cost.
type life struct {
	*office
	instance   *relaying
	wire       *wire
	pool       *sql.DB               // of the store, past its observer
	redis      redis.UniversalClient // nil without Redis
	acceptor   *service.Acceptor
	attempts   *service.AttemptWriter
	backoffice *service.Backoffice
	work       *service.DriverService

	mu      sync.Mutex
	queries []string // that the store has sent
	commits int
	sent    map[string][]string // the queries by step, of the last life
	events  int                 // that the relay has to finish
	results int                 // that it has to record
	again   int                 // pushes that it has postponed
}

func newLife(t *testing.T, o *office) *life {
	t.Helper()
	if o.kind == servertest.TiDB {
		t.Skip("TiDB does not count commits and rows")
	}
	l := &life{office: o, sent: map[string][]string{}}
	o.observer = l.observe
	r, store := o.relayBeside(func(n *notify.RelayOptions, b *pushes.Options) {
		n.PollInterval, b.LeaseTerm = time.Hour, time.Hour
	})
	l.instance, l.wire, l.pool = r, r.wire, store.Pools()["decide"]
	var gate service.Gate
	if o.kind != servertest.SQLite { // in a bubble there is no server
		url := servertest.StartRedis(t).URL()
		client, err := redisclient.Dial(url, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		l.redis, gate = client, lock.NewGate(client, testkit.Patience, slog.New(slog.DiscardHandler), lock.NewMetrics(nil))
	}
	if o.kind == servertest.MariaDB {
		if _, err := l.pool.Exec("SET GLOBAL userstat = ON"); err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	l.attempts = service.NewAttemptWriter(store.Offers, "test", quiet)
	l.acceptor = service.NewAcceptor(service.AcceptorOptions{
		Claims: store.Dispatches, Gate: gate, LockTTL: testkit.Patience, Timeout: testkit.Patience, Attempts: l.attempts, Log: quiet,
	})
	l.backoffice = service.NewBackoffice(store.Dispatches, store.Drivers, l.acceptor)
	l.work = service.NewDriverService(service.DriverServiceOptions{Store: store.Dispatches, Offers: store.Offers, Drivers: store.Drivers, Acceptor: l.acceptor, Now: time.Now})
	return l
}

// observe is a database.StatementObserver.
func (l *life) observe(ctx context.Context, s database.Statement) (context.Context, func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.Pool == "watch", s.Operation == "begin", s.Operation == "rollback":
	case s.Operation == "commit":
		l.commits++
	case s.Operation == "call":
		l.commits++
		fallthrough
	default:
		l.queries = append(l.queries, s.Pool+" "+s.Query)
	}
	return ctx, func(error) {}
}

// live lives the life of a dispatch, and returns what each step costs.
func (l *life) live() map[string]costs {
	l.t.Helper()
	spent := map[string]costs{}
	var d dispatch.Dispatch
	var winner dispatch.DriverID
	l.step(spent, "offered", len(l.cars), func(ctx context.Context) (err error) {
		d, err = l.backoffice.Create(ctx, service.DispatchRequest{Terms: l.terms("seoul", time.Now())}, "key_1")
		return err
	})
	l.step(spent, "won", len(l.cars), func(ctx context.Context) error {
		winners := make(chan dispatch.DriverID, len(l.cars))
		testkit.Together(len(l.cars), func(k int) {
			if _, err := l.acceptor.Accept(ctx, service.Tap{Dispatch: d.ID, Driver: l.cars[k].ID, Round: 1}); err == nil {
				winners <- l.cars[k].ID
			}
		})
		close(winners)
		winner = <-winners
		ended, end := context.WithCancel(ctx)
		end()
		l.attempts.Run(ended) // stores the taps that wait
		return nil
	})
	l.step(spent, "started", 0, func(ctx context.Context) error { _, err := l.work.Start(ctx, winner, d.ID, 0); return err })
	l.step(spent, "completed", 0, func(ctx context.Context) error { _, err := l.work.Complete(ctx, winner, d.ID, 0); return err })
	return spent
}

// step measures what do costs, with the event that it commits and the pushes that follow.
func (l *life) step(spent map[string]costs, name string, pushes int, do func(context.Context) error) {
	l.t.Helper()
	l.events, l.results = l.events+1, l.results+pushes
	before, flushes := l.spent(), l.calls("RecordResults")
	if err := do(l.t.Context()); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
	l.eventually("the dispatch is "+name, func() bool {
		// The machine stood still, and pushes are due again, at once or in seconds. The relay looks at what is due only once an hour.
		if l.wire.postponed() > l.again {
			l.instance.Wake()
		}
		return l.wire.finished() == l.events && l.wire.recorded() == l.results
	})
	l.again = l.wire.postponed()
	now := l.spent()
	// The sends' results are recorded in one statement if they are there in time, and a busy machine needs a few.
	repeated := max(l.calls("RecordResults")-flushes-1, 0)
	spent[name] = costs{
		now.Statements - before.Statements - repeated, now.Commits - before.Commits, now.Rows - before.Rows, now.Redis - before.Redis, now.Allocs - before.Allocs,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[name] = slices.Clone(l.queries[before.Statements:])
}

// calls returns how many calls of that name the relay has made.
func (l *life) calls(name string) (n int) {
	for _, c := range l.wire.made() {
		if c.name == name {
			n++
		}
	}
	return n
}

// spent is what everything has cost until now.
func (l *life) spent() costs {
	l.t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := costs{Rows: l.rowsChanged(), Redis: l.redisCommands(), Allocs: int(m.Mallocs)}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Statements, c.Commits = len(l.queries), l.commits
	return c
}

// rowsChanged returns how many rows of the database were inserted, updated or deleted, by whomever.
func (l *life) rowsChanged() (n int) {
	l.t.Helper()
	query := map[string]string{
		servertest.SQLite:  "SELECT total_changes()", // of the only connection that writes
		servertest.MariaDB: "SELECT COALESCE(SUM(rows_changed), 0) FROM information_schema.table_statistics WHERE table_schema = DATABASE()",
		servertest.MySQL: `SELECT COALESCE(SUM(count_insert + count_update + count_delete), 0) FROM performance_schema.table_io_waits_summary_by_table
			WHERE object_schema = DATABASE()`,
	}[l.kind]
	if err := l.pool.QueryRow(query).Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// redisCommands returns how many commands the gate has sent.
func (l *life) redisCommands() (n int) {
	l.t.Helper()
	if l.redis == nil {
		return 0
	}
	info, err := l.redis.InfoMap(l.t.Context(), "commandstats").Result()
	if err != nil {
		l.t.Fatal(err)
	}
	for name, stats := range info["Commandstats"] {
		switch name {
		case "cmdstat_set", "cmdstat_get", "cmdstat_del", "cmdstat_eval", "cmdstat_evalsha", "cmdstat_publish":
			calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
			more, err := strconv.Atoi(calls)
			if err != nil {
				l.t.Fatal(err)
			}
			n += more
		}
	}
	return n
}
