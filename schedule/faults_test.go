package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"firsttap/cronjob"
	"firsttap/lock"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
	"firsttap/servertest"
	"firsttap/testkit"
)

// proxied returns another Store on the place's database, connected through a proxy.
func (p *place) proxied() (*repository.Store, *servertest.Proxy) {
	p.t.Helper()
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	proxy := servertest.StartProxy(p.t, u.Host)
	return repositorytest.Open(p.t, proxy.URL(p.url), repository.Options{}), proxy
}

// Redis is flushed during a run: the work is canceled, and the slot is completed once, by one instance at a time.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	redis := servertest.StartRedis(t)
	begun, causes := make(chan string, 10), make(chan error, 1)
	for _, who := range []string{"a", "b", "c"} {
		p.start(who, schedule.Options{Locks: redisLocks(t, redis.URL()), Jobs: []schedule.Job{{
			Name: "long", When: schedule.After(once), Hold: brief,
			Work: d.keep(who, func(ctx context.Context, run cronjob.Run) (string, error) {
				begun <- who
				if len(d.of("long")) > 1 {
					return "", nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return "", errWork
			}),
		}}})
	}
	testkit.Await(t, "it begins", begun)
	client, err := redisclient.Dial(redis.URL(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if cause := testkit.Await(t, "the work is canceled", causes); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the work's context ended with %v", cause)
	}
	testkit.Await(t, "it begins again", begun)
	runs := p.awaitRuns("long", 1, cronjob.Succeeded)
	if len(runs) != 1 || len(d.of("long")) != 2 {
		t.Errorf("%d works and the runs %+v", len(d.of("long")), runs)
	}
}

// Without Redis no job runs, which is reported. When it is back, each job makes up for missed slots as far as it wants to.
func TestRedisIsGone(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), newDiary(t)
	redis := servertest.StartRedis(t)
	const late = 1500 * time.Millisecond
	all := map[string]*instance{}
	count := map[string]metrics{}
	names := []string{"all", "some", "latest", "led"}
	for _, who := range []string{"a", "b"} {
		count[who] = newMetrics(t)
		all[who] = p.start(who, schedule.Options{Locks: redisLocks(t, redis.URL()), Metrics: count[who], Jobs: []schedule.Job{
			{Name: "all", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep(who, done)},
			{Name: "some", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: late, Work: d.keep(who, done)},
			{Name: "latest", When: schedule.Cron(everySecond), Hold: usual, Work: d.keep(who, done)},
			{Name: "led", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, OnLeader: true, Work: d.keep(who, done)},
		}})
	}
	for _, job := range names {
		p.awaitRuns(job, 2, cronjob.Succeeded)
	}
	redis.Kill()
	blocked := map[string]cronjob.BlockReport{}
	for _, job := range names {
		for _, who := range []string{"a", "b"} {
			count[who].atLeast("firsttap_job_skips_total", job, "unavailable", 3)
			testkit.Retry(t, func() error {
				if len(all[who].log.about("ERROR", "job not run", "job="+job)) == 0 {
					return fmt.Errorf("%s does not say that %s does not run", who, job)
				}
				b := p.state(job).Blocked
				if b == nil {
					return fmt.Errorf("%s is not blocked", job)
				}
				blocked[job] = *b
				return nil
			})
		}
	}
	before := map[string]int{}
	for _, job := range names {
		before[job] = len(d.of(job))
	}
	jobs, err := all["a"].Jobs(t.Context())
	if err != nil || len(jobs) != len(names) || jobs[0].LockProblem == "" || jobs[0].Holder != nil || jobs[0].Blocked == nil {
		t.Errorf("the jobs are %+v: %v", jobs, err)
	}
	for _, who := range []string{"a", "b"} {
		held, _ := count[who].of("firsttap_job_skips_total", "all", "unavailable")
		count[who].atLeast("firsttap_job_skips_total", "all", "unavailable", held+1)
	}
	for _, job := range names {
		if n := len(d.of(job)); n != before[job] {
			t.Errorf("%d works of %s while the holder of its lock is unknown", n-before[job], job)
		}
	}
	redis.Start()
	for _, job := range names {
		runs := p.awaitRuns(job, before[job]+3, cronjob.Succeeded)
		if b := p.state(job).Blocked; b != nil && b.Since.Equal(blocked[job].Since) {
			t.Errorf("%s runs, and is blocked: %+v", job, b)
		}
		gaps := 0
		for i, r := range runs[1:] {
			if r.Slot.Sub(runs[i].Slot) != time.Second {
				gaps++
			}
			if behind := r.BeganAt.Sub(r.Slot); job == "some" && behind > late || job == "latest" && behind > time.Second {
				t.Errorf("%s: %s was begun %v late", job, r.Slot, behind)
			}
		}
		if (gaps == 0) != (job == "all" || job == "led") {
			t.Errorf("%s has %d gaps: %+v", job, gaps, runs)
		}
	}
}

// One instance loses the database: its work is canceled before another begins, and it goes on when the database is back.
func TestTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*servertest.Proxy, bool){
		"refused": (*servertest.Proxy).Refuse, "swallowed": (*servertest.Proxy).Blackhole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, d := newPlace(t), newDiary(t)
			store, proxy := p.proxied()
			begun, told := make(chan time.Time, 10), make(chan time.Time, 1)
			work := func(who string) JobStore {
				return d.keep(who, func(ctx context.Context, run cronjob.Run) (string, error) {
					begun <- time.Now()
					if len(d.of("job")) > 1 {
						return "by " + who, nil
					}
					<-ctx.Done()
					told <- time.Now()
					if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrUnreachable) {
						t.Errorf("the work's context ended with %v", cause)
					}
					return "", errWork
				})
			}
			job := func(who string) []schedule.Job {
				return []schedule.Job{{Name: "job", When: schedule.After(once), Hold: brief, Work: work(who)}}
			}
			a := p.start("a", schedule.Options{Ledger: store, Jobs: job("a")})
			testkit.Await(t, "it begins", begun)
			b := p.start("b", schedule.Options{Jobs: job("b")})
			away(proxy, true)
			again := testkit.Await(t, "another takes it over", begun)
			if before := again.Sub(testkit.Await(t, "the work is canceled", told)); before < 0 {
				t.Errorf("canceled %v after another began", -before)
			}
			runs := p.awaitRuns("job", 1, cronjob.Succeeded)
			if len(runs) != 1 || runs[0].Attempt != 2 || runs[0].Result != "by b" {
				t.Errorf("the runs are %+v", runs)
			}
			b.stop()
			if _, err := b.RunNow(t.Context(), "job", "key_1"); err != nil {
				t.Fatal(err)
			}
			away(proxy, false)
			if runs := p.awaitRuns("job", 2, cronjob.Succeeded); runs[1].Result != "by a" {
				t.Errorf("the runs are %+v", runs)
			}
			a.stop()
		})
	}
}

// Work that was overtaken is canceled, and does not change the run.
func TestOvertakenWorkIsCanceled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	a := p.start("a", schedule.Options{Jobs: []schedule.Job{{
		Name: "job", When: schedule.After(once), Hold: brief,
		Work: func(ctx context.Context, _ cronjob.Run) (string, error) {
			begun <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "", nil // the work was done all the same
		},
	}}})
	testkit.Await(t, "it begins", begun)
	p.exec("UPDATE job_runs SET owner = 'thief/1', attempt = 2, alive_until = alive_until + 3600000000")
	if cause := testkit.Await(t, "the work is canceled", causes); !errors.Is(cause, lock.ErrStolen) {
		t.Errorf("the work's context ended with %v", cause)
	}
	a.stop()
	if r := p.runs("job")[0]; r.Status != cronjob.Running || r.Owner != "thief/1" || r.Attempt != 2 {
		t.Errorf("the run is %+v", r)
	}
}

// Whichever reply of the database is lost, the run begins once and ends once.
func TestAReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][2]string{
		"that it was begun": {"COMMIT", "INTO `job_runs`"},
		"that it goes on":   {"SET alive_until"},
		"that it has ended": {"COMMIT", "SET status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, d := newPlace(t), newDiary(t)
			store, proxy := p.proxied()
			var after []string
			if lost[1] != "" {
				after = lost[1:]
			}
			cut := proxy.CutReply(lost[0], after...)
			p.start("a", schedule.Options{Ledger: store, Jobs: []schedule.Job{{
				Name: "job", When: schedule.After(once), Hold: lock.Renewed(3*time.Second, time.Minute),
				Work: d.keep("a", func(ctx context.Context, _ cronjob.Run) (string, error) {
					return "", pause(ctx, 2*time.Second)
				}),
			}}})
			testkit.Await(t, "the reply is lost", cut.Done())
			runs := p.awaitRuns("job", 1, cronjob.Succeeded)
			if n := len(d.of("job")); n != 1 || len(runs) != 1 || runs[0].Attempt != 1 {
				t.Errorf("%d works and the runs %+v", n, runs)
			}
		})
	}
}

// If the database refuses to begin runs, that is reported, and retried a few times a second at most.
func TestDatabaseRefusesRuns(t *testing.T) {
	t.Parallel()
	p, d, m := newPlace(t), newDiary(t), newMetrics(t)
	p.exec(`CREATE TRIGGER no_runs BEFORE INSERT ON job_runs FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no runs today'`)
	began := time.Now()
	i := p.start("a", schedule.Options{Metrics: m, Jobs: []schedule.Job{
		{Name: "job", When: schedule.Cron(everySecond), Hold: usual, MaxDelay: aWhile, Work: d.keep("a", done)},
	}})
	m.atLeast("firsttap_job_skips_total", "job", "unavailable", 4)
	// One for each slot, and one for each reading of the ledger.
	if n, _ := m.of("firsttap_job_skips_total", "job", "unavailable"); n > 4+3*time.Since(began).Seconds() {
		t.Errorf("it was tried %v times in %v", n, time.Since(began))
	}
	if b := p.state("job").Blocked; b == nil || len(i.log.about("ERROR", "no runs today")) != 1 {
		t.Errorf("blocked: %+v; said: %q", b, i.log.about("ERROR"))
	}
	p.exec("DROP TRIGGER no_runs")
	mustBeConsecutive(t, having(p.awaitRuns("job", 4, cronjob.Succeeded), cronjob.Succeeded))
}
