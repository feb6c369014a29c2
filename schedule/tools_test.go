//nolint:forbidigo // its pauses are in bubbles of testing/synctest
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
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
	// once is the delay of an After that runs at the start, and not again in a test.
	once = time.Hour
	// aWhile is a MaxDelay that no test outlasts.
	aWhile = time.Hour
)

var (
	eachSecond = schedule.Cron("* * * * * *")
	yearly     = schedule.Cron("0 0 0 1 7 *")
	// usual is how most tests' jobs are held: a busy machine does not lose it.
	usual = lock.Renewed(6*time.Second, time.Minute)

	errWork = errors.New("the work went wrong")
)

// place is a database that instances share, and the record of their works.
type place struct {
	t       *testing.T
	url     string
	store   *repository.Store
	raw     *sql.DB
	dialect migrations.Dialect
	locks   *lock.Memory // of the instances whose options say so

	causes   chan error // why works were canceled
	overlaps bool       // works ignore their contexts, and so are at a job at a time

	mu    sync.Mutex
	begun []cronjob.Run
	atIt  map[string]string // owners by job
}

// newPlace is on MariaDB.
func newPlace(t *testing.T) *place { return newPlaceAt(t, repositorytest.URL(t, servertest.MariaDB)) }

func newPlaceAt(t *testing.T, url string) *place {
	t.Helper()
	p := &place{
		t: t, url: url, store: repositorytest.Open(t, url, repository.Options{}), locks: lock.NewMemory(),
		causes: make(chan error, 10), atIt: map[string]string{},
	}
	var err error
	if p.raw, p.dialect, err = database.OpenPool(url, 4); err != nil {
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

// register enters the job in the ledger, as an instance does that starts.
func (p *place) register(job string) {
	p.t.Helper()
	if _, _, err := p.store.Runs.JobStates(p.t.Context(), []string{job}); err != nil {
		p.t.Fatal(err)
	}
}

// dies has an instance begin a run of the job for a minute, and die.
func (p *place) dies(job string) {
	p.t.Helper()
	due := func(s cronjob.JobState, _ time.Time) time.Time { return s.RegisteredAt }
	if _, err := p.store.Runs.BeginRun(p.t.Context(), job, "dead/1", time.Minute, due); err != nil {
		p.t.Fatal(err)
	}
}

// runs are those of a job, the earliest first.
func (p *place) runs(job string) []cronjob.Run {
	p.t.Helper()
	runs, _, err := p.store.Runs.Runs(p.t.Context(), job, dispatch.Page{Limit: 100_000})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Reverse(runs)
	return runs
}

func (p *place) state(job string) cronjob.JobState {
	p.t.Helper()
	states, _, err := p.store.Runs.JobStates(p.t.Context(), []string{job})
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

func having(runs []cronjob.Run, status cronjob.Status) []cronjob.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r cronjob.Run) bool { return r.Status != status })
}

// by returns the instance of an owner.
func by(owner string) string {
	instance, _, _ := strings.Cut(owner, "/")
	return instance
}

// instance is a Scheduler at work, on connections of its own.
type instance struct {
	*schedule.Scheduler
	t       *testing.T
	who     string
	metrics *prometheus.Registry
	log     testkit.LogBuffer
	stop    func() // once it has returned, nothing runs
	// Its links to the ledger and to the locks, of which the usual are.
	ledger, locks link
}

// start runs an instance until the test ends; see create.
func (p *place) start(who string, o schedule.Options) *instance {
	p.t.Helper()
	i := p.create(who, o)
	i.begin()
	return i
}

// startAll runs instances with the same options, and returns them by name.
func (p *place) startAll(o schedule.Options, names ...string) map[string]*instance {
	p.t.Helper()
	all := map[string]*instance{}
	for _, who := range names {
		all[who] = p.start(who, o)
	}
	return all
}

// create returns an instance that does not run. What o does not say is as usual: the place's database, a memory of the
// instance's own for locks. It reaches either, and any other memory, over links. A job runs once, is held as usual, and is done
// at once, unless it says otherwise.
func (p *place) create(who string, o schedule.Options) *instance {
	p.t.Helper()
	i := &instance{t: p.t, who: who, metrics: prometheus.NewPedanticRegistry(), stop: func() {}}
	o.Instance, o.Metrics, o.Log = who, i.metrics, slog.New(slog.NewTextHandler(&i.log, nil))
	if o.Ledger == nil {
		o.Ledger = linkedLedger{p.store.Runs, &i.ledger}
	}
	if o.Locks == nil {
		o.Locks = lock.NewMemory()
	}
	if memory, ok := o.Locks.(*lock.Memory); ok {
		o.Locks = linkedLocks{memory, &i.locks}
	}
	o.Jobs = slices.Clone(o.Jobs)
	for k, j := range o.Jobs {
		if j.When == nil {
			j.When = schedule.After(once)
		}
		if j.Hold == (lock.Hold{}) {
			j.Hold = usual
		}
		if j.Work == nil {
			j.Work = done
		}
		j.Work = p.noted(j.Work)
		o.Jobs[k] = j
	}
	var err error
	if i.Scheduler, err = schedule.New(o); err != nil {
		p.t.Fatal(err)
	}
	return i
}

// begin runs the instance until the test ends.
func (i *instance) begin() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(i.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.Run(ctx)
	}()
	i.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Await(i.t, i.who+" stops", ended)
	})
	i.t.Cleanup(i.stop)
}

// request requests a run of the job.
func (i *instance) request(job string) cronjob.Run {
	i.t.Helper()
	run, err := i.RunNow(i.t.Context(), job, "key_1")
	if err != nil || run.Job != job || run.RequestedBy != "key_1" || run.Status != cronjob.Queued {
		i.t.Fatalf("requested %+v: %v", run, err)
	}
	return run
}

// jobs are what operators see of the jobs.
func (i *instance) jobs() []cronjob.Job {
	i.t.Helper()
	jobs, err := i.Jobs(i.t.Context())
	if err != nil {
		i.t.Fatal(err)
	}
	return jobs
}

// said are the lines of its log that contain all the words.
func (i *instance) said(words ...string) (found []string) {
	for line := range strings.Lines(i.log.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// work is what a Job does.
type work = func(ctx context.Context, run cronjob.Run) (string, error)

// noted writes down when work begins, and fails the test when two are at a job at a time.
func (p *place) noted(do work) work {
	return func(ctx context.Context, run cronjob.Run) (string, error) {
		p.mu.Lock()
		p.begun = append(p.begun, run)
		if other := p.atIt[run.Job]; other != "" && !p.overlaps {
			p.t.Errorf("%s is at %s of %s, and %s begins it", other, run.Slot, run.Job, run.Owner)
		}
		p.atIt[run.Job] = run.Owner
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.atIt, run.Job)
		}()
		return do(ctx, run)
	}
}

// works are the runs of a job whose work was begun, once for each time.
func (p *place) works(job string) []cronjob.Run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.begun), func(r cronjob.Run) bool { return r.Job != job })
}

// done is a work that is done at once.
func done(context.Context, cronjob.Run) (string, error) { return "done", nil }

// takes is a work that takes that long.
func takes(d time.Duration) work {
	return func(ctx context.Context, _ cronjob.Run) (string, error) { return "", pause(ctx, d) }
}

// firstly is work whose first run does that and whose other runs are done at once.
func firstly(do work) work {
	var did atomic.Bool
	return func(ctx context.Context, run cronjob.Run) (string, error) {
		if did.CompareAndSwap(false, true) {
			return do(ctx, run)
		}
		return done(ctx, run)
	}
}

// untilCanceled is a work that ends when its context does.
func (p *place) untilCanceled(ctx context.Context, _ cronjob.Run) (string, error) {
	<-ctx.Done()
	p.causes <- context.Cause(ctx)
	return "", context.Cause(ctx)
}

// mustBeCanceled fails the test unless an untilCanceled was canceled, and for that reason.
func (p *place) mustBeCanceled(reason error) {
	p.t.Helper()
	select {
	case cause := <-p.causes:
		if !errors.Is(cause, reason) {
			p.t.Errorf("the work's context ended with %v, want %v", cause, reason)
		}
	default:
		p.t.Error("the work is not canceled")
	}
}

// tableLocks are in the place's database.
func (p *place) tableLocks() *lock.Table { return lock.NewTable(p.raw, lock.Dialect(p.dialect)) }

// pause returns nil after d, or the cause if ctx ended first.
func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
