package push

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
	"firsttap/systemtest"
)

// fcmLatency is FCM's latency: a server on the other side of the world.
const fcmLatency = 50 * time.Millisecond

// arrivals records when the requests for each dispatch arrive at FCM.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func recordArrivals(fcm *fcmtest.Server) *arrivals {
	l := &arrivals{at: map[string][]time.Time{}}
	fcm.OnSend(func(r fcmtest.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.at[r.Data["dispatch_id"]] = append(l.at[r.Data["dispatch_id"]], r.At)
	})
	return l
}

func (l *arrivals) of(id string) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at[id])
}

// setup is a way to run FirstTap: the instance that commits, and the times from its commits to FCM.
type setup struct {
	name     string
	commit   *systemtest.Instance
	db       *systemtest.Database
	arrivals *arrivals
	region   string
	phones   int
	// from the event's time to the first, the middle and the last request; and from the POST and its response to the first
	first, middle, last, posted, answered samples
}

// sample makes a dispatch and measures its pushes.
func (s *setup) sample(t testing.TB) {
	t.Helper()
	posted := time.Now()
	id := systemtest.MakeDispatchWith(t, s.commit, systemtest.DispatchOptions{Region: s.region})
	answered := time.Now()
	testkit.Eventually(t, "all are pushed", func() bool { return len(s.arrivals.of(id)) >= s.phones })
	var us int64
	if err := s.db.DB.QueryRow("SELECT at FROM events WHERE dispatch_id=? AND type='dispatch.created'", id).Scan(&us); err != nil {
		t.Fatal(err)
	}
	at := s.arrivals.of(id)
	slices.SortFunc(at, time.Time.Compare)
	event := time.UnixMicro(us)
	s.first.add(at[0].Sub(event))
	s.middle.add(at[len(at)/2].Sub(event))
	s.last.add(at[len(at)-1].Sub(event))
	s.posted.add(at[0].Sub(posted))
	s.answered.add(at[0].Sub(answered))
}

// samples are durations.
type samples []time.Duration

func (s *samples) add(d time.Duration) { *s = append(*s, d) }

// at is the quantile p of the samples.
func (s samples) at(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func (s samples) String() string {
	return fmt.Sprintf("p10 %8s  p50 %8s  p95 %8s  max %8s  n %4d",
		brief(s.at(.1)), brief(s.at(.5)), brief(s.at(.95)), brief(s.at(1)), len(s))
}

func brief(d time.Duration) time.Duration {
	switch {
	case d.Abs() < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d.Abs() < time.Second:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// poller is the simple design: a goroutine polls a table for unsent rows, sends them and marks them.
type poller struct {
	name  string
	every time.Duration
	db    *sql.DB
	fcm   string
	mu    sync.Mutex
	took  samples
	// commits are the times of writing a row: the least that a transaction costs on this machine.
	commits samples
}

func newPoller(t testing.TB, url string, fcm *fcmtest.Server, every time.Duration) *poller {
	t.Helper()
	p := &poller{name: fmt.Sprintf("a poll every %s", every), every: every, db: systemtest.OpenDatabase(t, url).DB, fcm: fcm.URL()}
	_, err := p.db.Exec("CREATE TABLE simple (id BIGINT AUTO_INCREMENT PRIMARY KEY, at BIGINT NOT NULL, sent INT NOT NULL, KEY (sent))")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run writes rows at random times, one per gap on average, and sends them, until ctx ends.
func (p *poller) run(ctx context.Context, gap time.Duration) error {
	var writing sync.WaitGroup
	defer writing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	writing.Go(func() {
		for pauseAtRandom(ctx, gap) {
			began := time.Now()
			if _, err := p.db.ExecContext(ctx, "INSERT INTO simple (at, sent) VALUES (?, 0)", began.UnixMicro()); err != nil {
				return
			}
			p.commits.add(time.Since(began))
		}
	})
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := p.look(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *poller) look(ctx context.Context) error {
	rows, err := p.db.QueryContext(ctx, "SELECT id, at FROM simple WHERE sent=0")
	if err != nil {
		return err
	}
	defer rows.Close()
	var sending sync.WaitGroup
	for rows.Next() {
		var id, at int64
		if err := rows.Scan(&id, &at); err != nil {
			return err
		}
		sending.Go(func() {
			took := time.Since(time.UnixMicro(at))
			body := fmt.Sprintf(`{"message":{"token":"simple-%d","data":{"dispatch_id":"simple"}}}`, id)
			resp, err := systemtest.Client.Post(p.fcm+"/v1/projects/simple/messages:send", "application/json", strings.NewReader(body))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				p.mu.Lock()
				p.took.add(took)
				p.mu.Unlock()
				_, _ = p.db.ExecContext(ctx, "UPDATE simple SET sent=1 WHERE id=?", id)
			}
		})
	}
	sending.Wait()
	return rows.Err()
}

// pauseAtRandom waits for mean on average, and reports whether ctx has not ended.
func pauseAtRandom(ctx context.Context, mean time.Duration) bool {
	t := time.NewTimer(rand.N(2 * mean))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// setups are the ways to run FirstTap, each with a database of its own on one server, and its own FCM.
func setups(b *testing.B, db *servertest.Database) (fast, crowds []*setup, slow *setup) {
	b.Helper()
	away := servertest.StartRedis(b)
	here := []string{"FIRSTTAP_REDIS_URL=" + servertest.RedisURL(b), systemtest.QuickRedis, systemtest.QuickClaims}
	gone := []string{"FIRSTTAP_REDIS_URL=" + away.URL(), systemtest.QuickRedis, systemtest.QuickClaims}
	leader := func(s []string) []string { return append(s[:1:1], "FIRSTTAP_RELAY=leader", "FIRSTTAP_JOB_LOCK=table") }
	same := newSetup(b, db, "one instance, Redis up", 1, here)
	fast = []*setup{
		same, newSetup(b, db, "across instances, Redis up", 2, leader(here)), newSetup(b, db, "one instance, Redis away", 1, gone),
	}
	slow = newSetup(b, db, "across instances, Redis away", 2, leader(gone))
	for _, n := range []int{30, 300} {
		s := *same
		s.name, s.region, s.phones = fmt.Sprintf("%d phones", n), fmt.Sprintf("region-%d", n), n
		systemtest.MakeDriversWithPhones(b, s.commit, s.region, n)
		crowds = append(crowds, &s)
	}
	away.Kill()
	return fast, crowds, slow
}

func newSetup(b *testing.B, db *servertest.Database, name string, instances int, settings []string) *setup {
	b.Helper()
	fcm := systemtest.StartFCM(b)
	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = fcmLatency })
	mail := systemtest.RecordDeliveries(fcm)
	url := db.URL(b)
	all := map[string]*systemtest.Instance{}
	for k := range instances {
		name := fmt.Sprintf("i%d", k)
		all[name] = systemtest.Start(b, systemtest.PushSettings(url, fcm, name, settings...)...)
	}
	s := &setup{name: name, commit: all["i0"], db: systemtest.OpenDatabase(b, url), region: "seoul", phones: 1}
	systemtest.MakeDriversWithPhones(b, s.commit, s.region, 1)
	// Of several instances, one that does not send commits. The first push shows which one sends.
	systemtest.MakeDispatchWith(b, s.commit, systemtest.DispatchOptions{Region: s.region})
	testkit.Eventually(b, "it pushes", func() bool { n, _ := mail.Count(); return n == 1 })
	if instances > 1 && mail.ByProject()["i0"] > 0 {
		s.commit = all["i1"]
	}
	s.arrivals = recordArrivals(fcm)
	return s
}

// The time from a commit to the request at FCM, in each way to run FirstTap and in the simple design. FirstTap's clock
// starts when the event is made, in the transaction, before its COMMIT.
func BenchmarkPushLatency(b *testing.B) {
	const rounds, crowdRounds = 300, 20
	db := servertest.StartMariaDB(b)
	fast, crowds, slow := setups(b, db)
	simpleFCM := systemtest.StartFCM(b)
	simpleFCM.Set(func(k *fcmtest.Knobs) { k.Latency = fcmLatency })
	url := db.URL(b)
	pollers := []*poller{newPoller(b, url, simpleFCM, 20*time.Second), newPoller(b, db.URL(b), simpleFCM, time.Second)}

	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	for _, p := range pollers {
		running.Go(func() {
			if err := p.run(ctx, 150*time.Millisecond); err != nil {
				b.Errorf("%s: %v", p.name, err)
			}
		})
	}
	running.Go(func() {
		for pauseAtRandom(ctx, 500*time.Millisecond) {
			slow.sample(b)
		}
	})
	for round := range rounds {
		for k := range fast {
			pauseAtRandom(ctx, 100*time.Millisecond)
			fast[(round+k)%len(fast)].sample(b)
		}
		if round%(rounds/crowdRounds) == 0 {
			for _, s := range crowds {
				s.sample(b)
			}
		}
	}
	stop()
	running.Wait()

	b.Logf("%-32s %s", "one INSERT and its COMMIT", pollers[1].commits)
	for _, s := range append(fast, slow) {
		b.Logf("%-32s from the event:  %s", s.name, s.first)
		b.Logf("%-32s from the answer: %s", "", s.answered)
		b.Logf("%-32s from the POST:   %s, %.1f INSERTs", "", s.posted, s.posted.at(.5).Seconds()/pollers[1].commits.at(.5).Seconds())
	}
	for _, p := range pollers {
		b.Logf("%-32s from the event:  %s", p.name, p.took)
	}
	for _, s := range crowds {
		b.Logf("%-32s first:  %s", s.name, s.first)
		b.Logf("%-32s middle: %s", "", s.middle)
		b.Logf("%-32s last:   %s", "", s.last)
	}
	b.ReportMetric(float64(fast[0].first.at(.5).Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(fast[1].first.at(.5).Microseconds())/1000, "ms-p50-across")
	b.ReportMetric(float64(slow.first.at(.5).Microseconds())/1000, "ms-p50-away")
	b.ReportMetric(0, "ns/op")
}
