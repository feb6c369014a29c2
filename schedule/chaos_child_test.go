package schedule_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/runs"
	"firsttap/schedule"
)

// chaosJob is the one job of these tests.
const chaosJob = "chaos"

// role configures a process of these tests as an instance of a schedule. The process gets it as JSON.
type role struct {
	Name     string // of the process, and so the first part of its owners
	Database string
	Lock     string // as FIRSTTAP_JOB_LOCK names it
	Redis    []string
	TTL      time.Duration
	Cron     string        // "" for a job of the leader that is always due
	MaxDelay time.Duration // as of schedule.Job; an hour if 0
	Look     time.Duration // as of schedule.Options
	Seed     uint64
}

// roleMark is the argument of a process before its role.
const roleMark = "schedule-instance"

// TestInstance is an instance, in a process that a fleet has started. In any other process it does nothing.
func TestInstance(t *testing.T) {
	if flag.NArg() != 2 || flag.Arg(0) != roleMark {
		return
	}
	var r role
	if err := json.Unmarshal([]byte(flag.Arg(1)), &r); err != nil {
		t.Fatal(err)
	}
	r.play(t)
}

// report is a message of an instance to the test, a line of JSON on stdout.
type report struct {
	Who  string
	What string
	At   time.Time // by the clock of the instance
	cronjob.Run
	Note string
}

// The values of report.What.
const (
	isUp      = "up"
	leads     = "leads"
	hasBegun  = "begun"       // the work of a run began
	wasTold   = "told"        // the work's context has ended
	commits   = "commits"     // everything is written, and COMMIT comes next
	committed = "committed"   // the reply to COMMIT has come
	refused   = "refused"     // the run is another instance's
	again     = "again"       // the database was unavailable
	gaveUp    = "interrupted" // the work returned as its context had ended
	stood     = "stood"       // the instance stood still from BeganAt until At
)

// player is a process that plays its role.
type player struct {
	role
	store *repository.Store
	rand  *rand.Rand

	mu sync.Mutex // for stdout
}

// play runs the schedule until stdin is closed.
func (r role) play(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &player{role: r, rand: rand.New(rand.NewPCG(r.Seed, 0))}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.MessageKey && strings.HasPrefix(a.Value.String(), "this instance is elected leader") {
			p.say(report{What: leads})
		}
		return a
	}}))
	var err error
	if p.store, err = repository.Open(ctx, r.Database, repository.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.store.Close() })
	job := schedule.Job{Name: chaosJob, When: schedule.Cron(r.Cron), Hold: lock.Renewed(r.TTL, time.Minute), MaxDelay: cmp.Or(r.MaxDelay, time.Hour), Work: p.work}
	if r.Cron == "" {
		job.When, job.OnLeader = schedule.After(50*time.Millisecond), true
	}
	s, err := schedule.New(schedule.Options{
		Jobs: []schedule.Job{job}, Ledger: p.store.Runs, Locks: r.strategy(t), Instance: r.Name, Log: log, PollInterval: r.Look,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it or dies
		cancel()
	}()
	p.say(report{What: isUp})
	go p.watch(ctx)
	s.Run(ctx)
}

// watch reports when the process stood still, because it was stopped or because the machine was busy.
func (p *player) watch(ctx context.Context) {
	const tick, still = 20 * time.Millisecond, 50 * time.Millisecond
	last := time.Now()
	for pause(ctx, tick) == nil {
		now := time.Now()
		if from := last; from.Add(still).Before(now) {
			p.say(report{What: stood, Run: cronjob.Run{BeganAt: &from}})
		}
		last = now
	}
}

// strategy opens the locks as FIRSTTAP_JOB_LOCK does.
func (r role) strategy(t *testing.T) schedule.Strategy {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var nodes []*lock.Redis
	for _, url := range r.Redis {
		nodes = append(nodes, redisLocks(t, url))
	}
	switch r.Lock {
	case "redis":
		return nodes[0]
	case "quorum":
		q, err := lock.NewQuorum(nodes...)
		must(err)
		return q
	case "table":
		db, dialect := openPool(t, r.Database)
		return lock.NewTable(db, lock.Dialect(dialect))
	case "named", "rows":
		config, err := database.MySQLConfig(r.Database)
		must(err)
		sessions, err := lock.OpenSessions(config, max(r.TTL, 3*time.Second), 4) // the lead takes 3 s
		must(err)
		t.Cleanup(func() { sessions.Close() })
		if r.Lock == "rows" {
			return sessions.Rows()
		}
		return sessions.Named()
	}
	return lock.NewMemory()
}

func (p *player) say(r report) {
	r.Who, r.At = p.Name, time.Now()
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n')) // one write, so that a kill leaves no half of it; it fails when the test is over
}

// work takes a while, and then commits its effect together with the end of the run. Mostly it ignores its context, like
// work that has not noticed that it was overtaken.
func (p *player) work(ctx context.Context, run cronjob.Run) (string, error) {
	say := func(what string, err error) {
		r := report{What: what, Run: run}
		if err != nil {
			r.Note = err.Error()
		}
		p.say(r)
	}
	say(hasBegun, nil)
	if p.Cron == "" {
		return "", nil
	}
	defer context.AfterFunc(ctx, func() { say(wasTold, context.Cause(ctx)) })()
	within := time.Duration(p.rand.Int64N(int64(100 * time.Millisecond))) // the transaction
	before := 100*time.Millisecond - within + time.Duration(p.rand.Int64N(int64(300*time.Millisecond)))
	heeded := ctx
	if p.rand.IntN(4) > 0 {
		var cancel context.CancelFunc
		heeded, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
	}
	if pause(heeded, before) != nil {
		say(gaveUp, nil)
		return "", context.Cause(heeded)
	}
	return "", p.conclude(heeded, run, within, say)
}

// conclude retries until the run is known to be concluded or refused.
func (p *player) conclude(ctx context.Context, run cronjob.Run, within time.Duration, say func(string, error)) error {
	for {
		err := p.store.Runs.ConcludeRun(ctx, run, "done", func(ctx context.Context, tx runs.Execer) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO witness (slot, owner, pid, at) VALUES (?, ?, ?, ?)",
				run.Slot.UnixMicro(), run.Owner, os.Getpid(), time.Now().UnixMicro())
			if err == nil {
				err = pause(ctx, within)
			}
			say(commits, err)
			return err
		})
		switch {
		case err == nil:
			say(committed, nil)
			return nil
		case errors.Is(err, dispatch.ErrNotLeased):
			say(refused, nil)
			return err
		}
		say(again, err)
		if pause(ctx, 50*time.Millisecond) != nil {
			say(gaveUp, nil)
			return context.Cause(ctx)
		}
	}
}
