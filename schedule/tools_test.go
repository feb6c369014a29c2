package schedule_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/migrations"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Those on servers wait most of the time.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(servertest.Main(m))
}

const (
	// everySecond is the Cron of most tests.
	everySecond = "* * * * * *"
	// once is the delay of an After that runs at the start, and not again in a test.
	once = time.Hour
	// aWhile is a MaxDelay that no test outlasts.
	aWhile = time.Hour
)

var (
	// usual is how most tests' jobs are held: a busy machine does not lose it.
	usual = lock.Renewed(6*time.Second, time.Minute)
)

// place is a database that instances share.
type place struct {
	t       *testing.T
	url     string
	store   *repository.Store
	raw     *sql.DB
	dialect migrations.Dialect
}

// newPlace is on MariaDB.
func newPlace(t *testing.T) *place { return newPlaceAt(t, repositorytest.URL(t, servertest.MariaDB)) }

func newPlaceAt(t *testing.T, url string) *place {
	t.Helper()
	p := &place{t: t, url: url, store: repositorytest.Open(t, url, repository.Options{})}
	var err error
	if p.raw, p.dialect, err = repository.OpenPool(url, 2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.raw.Close() })
	return p
}

func (p *place) exec(query string, args ...any) {
	p.t.Helper()
	if _, err := p.raw.ExecContext(p.t.Context(), query, args...); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
}

// runs are those of a job, the earliest first.
func (p *place) runs(job string) []cronjob.Run {
	p.t.Helper()
	runs, _, err := p.store.Runs(p.t.Context(), job, dispatch.Page{Limit: 10_000})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Reverse(runs)
	return runs
}

func (p *place) state(job string) cronjob.JobState {
	p.t.Helper()
	states, _, err := p.store.JobStates(p.t.Context(), []string{job})
	if err != nil {
		p.t.Fatal(err)
	}
	return states[job]
}

// awaitRuns waits until n runs of the job have ended so, and returns all there are.
func (p *place) awaitRuns(job string, n int, status cronjob.Status) (runs []cronjob.Run) {
	p.t.Helper()
	testkit.Retry(p.t, func() (err error) { runs, err = p.enough(job, n, status); return err })
	return runs
}

// ended fails the test unless n runs of the job have ended so, and returns all there are.
func (p *place) ended(job string, n int, status cronjob.Status) []cronjob.Run {
	p.t.Helper()
	runs, err := p.enough(job, n, status)
	if err != nil {
		p.t.Fatal(err)
	}
	return runs
}

func (p *place) enough(job string, n int, status cronjob.Status) ([]cronjob.Run, error) {
	p.t.Helper()
	runs := p.runs(job)
	if got := len(having(runs, status)); got < n {
		return nil, fmt.Errorf("%d runs of %s are %s, want %d: %+v", got, job, status, n, runs)
	}
	return runs, nil
}

func having(runs []cronjob.Run, status cronjob.Status) (found []cronjob.Run) {
	for _, r := range runs {
		if r.Status == status {
			found = append(found, r)
		}
	}
	return found
}

// instance is a Scheduler at work, on connections of its own.
type instance struct {
	*schedule.Scheduler
	who  string
	log  *notes
	stop func() // once it has returned, nothing runs
	// Its links to the ledger and to the locks, of which the usual are.
	ledger, locks link
}

// start runs an instance until the test ends. What o does not say is as usual: the place's database, a memory of the
// instance's own for locks. It reaches either, and any other memory, over links.
func (p *place) start(who string, o schedule.Options) *instance {
	p.t.Helper()
	i := p.create(who, o)
	i.begin()
	return i
}

// begin runs the instance until the test ends.
func (i *instance) begin() {
	t := i.log.t
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.Run(ctx)
	}()
	i.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Await(t, i.who+" stops", ended)
	})
	t.Cleanup(i.stop)
}

// create returns an instance that does not run.
func (p *place) create(who string, o schedule.Options) *instance {
	p.t.Helper()
	i := &instance{who: who, log: &notes{t: p.t, who: who}, stop: func() {}}
	o.Instance, o.Log = who, slog.New(i.log)
	if o.Ledger == nil {
		o.Ledger = linkedLedger{p.store, &i.ledger}
	}
	if o.Locks == nil {
		o.Locks = lock.NewMemory()
	}
	if memory, ok := o.Locks.(*lock.Memory); ok {
		o.Locks = linkedLocks{memory, &i.locks}
	}
	var err error
	if i.Scheduler, err = schedule.New(o); err != nil {
		p.t.Fatal(err)
	}
	return i
}

// notes are an instance's log from Info on.
type notes struct {
	slog.Handler
	t     *testing.T
	who   string
	attrs []slog.Attr

	mu    sync.Mutex
	lines []string
	at    []time.Time // of the lines
	up    *notes      // where the lines go, if not here
}

func (n *notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (n *notes) WithAttrs(attrs []slog.Attr) slog.Handler {
	up := n
	if n.up != nil {
		up = n.up
	}
	return &notes{t: n.t, who: n.who, attrs: append(slices.Clip(n.attrs), attrs...), up: up}
}

func (n *notes) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.AddAttrs(n.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	if n.up != nil {
		n = n.up
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines, n.at = append(n.lines, line), append(n.at, time.Now())
	return nil
}

// about are the lines that contain all the words.
func (n *notes) about(words ...string) (found []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range n.lines {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// last is when the last line with these words was written, the zero time if never.
func (n *notes) last(words string) (at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, line := range n.lines {
		if strings.Contains(line, words) {
			at = n.at[i]
		}
	}
	return at
}

// diary is the record of the works of all instances.
type diary struct {
	t *testing.T

	mu    sync.Mutex
	begun []entry
	atIt  map[string]string // by job
}

// entry is that a work was begun.
type entry struct {
	who string
	at  time.Time
	run cronjob.Run
}

func newDiary(t *testing.T) *diary { return &diary{t: t, atIt: map[string]string{}} }

// JobStore is what a Job does.
type JobStore = func(ctx context.Context, run cronjob.Run) (string, error)

// note writes down when work begins.
func (d *diary) note(who string, work JobStore) JobStore {
	return func(ctx context.Context, run cronjob.Run) (string, error) {
		d.mu.Lock()
		d.begun = append(d.begun, entry{who, time.Now(), run})
		d.mu.Unlock()
		return work(ctx, run)
	}
}

// keep is note, and fails the test when two are at a job at a time.
func (d *diary) keep(who string, work JobStore) JobStore {
	return d.note(who, func(ctx context.Context, run cronjob.Run) (string, error) {
		d.mu.Lock()
		if other := d.atIt[run.Job]; other != "" {
			d.t.Errorf("%s is at %s of %s, and %s begins it", other, run.Slot, run.Job, who)
		}
		d.atIt[run.Job] = who
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.atIt, run.Job)
		}()
		return work(ctx, run)
	})
}

// of are the entries of a job.
func (d *diary) of(job string) (found []entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.begun {
		if e.run.Job == job {
			found = append(found, e)
		}
	}
	return found
}

// done is a work that is done at once.
func done(context.Context, cronjob.Run) (string, error) { return "done", nil }

// untilCanceled is a work that ends when its context does.
func untilCanceled(ctx context.Context, _ cronjob.Run) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

var errWork = errors.New("the work went wrong")

// redisLocks are locks of an instance's own connections to a Redis.
func redisLocks(t *testing.T, url string) *lock.Redis {
	t.Helper()
	client, err := redisclient.Dial(url, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return lock.NewRedis(client, lock.ShedLockKeys("job-lock", "test"))
}

// tableLocks are in the place's database.
func (p *place) tableLocks() *lock.Table { return lock.NewTable(p.raw, lock.Dialect(p.dialect)) }

// pause returns nil after d, or the cause if ctx ended first.
func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
