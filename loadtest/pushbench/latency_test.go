package pushbench

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

	"firsttap/notify/fcmtest"
	"firsttap/servertest"
	"firsttap/systemtest"
	"firsttap/testkit"
)

// fcmLatency is what a request to FCM takes: the other side of the world.
const fcmLatency = 50 * time.Millisecond

// landings notes when the requests for each dispatch arrive at FCM.
type landings struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func openLandings(fcm *fcmtest.Server) *landings {
	l := &landings{at: map[string][]time.Time{}}
	fcm.OnSend(func(r fcmtest.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.at[r.Data["dispatch_id"]] = append(l.at[r.Data["dispatch_id"]], r.At)
	})
	return l
}

func (l *landings) of(id string) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at[id])
}

// stand is a way to run FirstTap: the instance that commits, and how long what it has committed takes to FCM.
type stand struct {
	name   string
	commit *systemtest.Instance
	books  *systemtest.Database
	landed *landings
	region string
	phones int
	// from the event's time to the first, the middle and the last request; and from the answer to the first.
	first, middle, last, answered samples
}

// sample makes a dispatch and notes what its pushes took.
func (s *stand) sample(t testing.TB) {
	t.Helper()
	id := systemtest.MakeDispatchWith(t, s.commit, systemtest.DispatchOptions{Region: s.region})
	answered := time.Now()
	testkit.Eventually(t, "all are pushed", func() bool { return len(s.landed.of(id)) >= s.phones })
	var us int64
	if err := s.books.DB.QueryRow("SELECT at FROM events WHERE dispatch_id=? AND type='dispatch.created'", id).Scan(&us); err != nil {
		t.Fatal(err)
	}
	at := s.landed.of(id)
	slices.SortFunc(at, time.Time.Compare)
	event := time.UnixMicro(us)
	s.first.add(at[0].Sub(event))
	s.middle.add(at[len(at)/2].Sub(event))
	s.last.add(at[len(at)-1].Sub(event))
	s.answered.add(at[0].Sub(answered))
}

// samples are durations.
type samples []time.Duration

func (s *samples) add(d time.Duration) { *s = append(*s, d) }

// at is the value that the share p of the samples does not exceed.
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

// poller is the design that there is without an outbox worth the name: a goroutine that looks every so often for
// what has not been sent, sends it, and marks it.
type poller struct {
	name  string
	every time.Duration
	db    *sql.DB
	fcm   string
	mu    sync.Mutex
	took  samples
	// commits are what writing a row takes: what any transaction on this machine costs at least.
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

// run writes rows at random times, one a gap on average, and sends them, until ctx ends.
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

// pauseAtRandom waits for mean on average, and reports whether ctx is still there.
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

// stands are FirstTap as it can be run, each with a database of its own on one server, and its own FCM.
func stands(b *testing.B, db *servertest.Database) (fast, crowds []*stand, slow *stand) {
	b.Helper()
	away := servertest.StartRedis(b)
	here := []string{"FIRSTTAP_REDIS_URL=" + servertest.RedisURL(b)}
	gone := []string{"FIRSTTAP_REDIS_URL=" + away.URL()}
	leader := func(s []string) []string { return append(s[:1:1], "FIRSTTAP_RELAY=leader", "FIRSTTAP_JOB_LOCK=table") }
	same := newStand(b, db, "one instance, Redis up", 1, here)
	fast = []*stand{
		same, newStand(b, db, "across instances, Redis up", 2, leader(here)), newStand(b, db, "one instance, Redis away", 1, gone),
	}
	slow = newStand(b, db, "across instances, Redis away", 2, leader(gone))
	for _, n := range []int{30, 300} {
		s := *same
		s.name, s.region, s.phones = fmt.Sprintf("%d phones", n), fmt.Sprintf("region-%d", n), n
		systemtest.MakeDriversWithPhones(b, s.commit, s.region, n)
		crowds = append(crowds, &s)
	}
	away.Kill()
	return fast, crowds, slow
}

func newStand(b *testing.B, db *servertest.Database, name string, instances int, settings []string) *stand {
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
	s := &stand{name: name, commit: all["i0"], books: systemtest.OpenDatabase(b, url), region: "seoul", phones: 1}
	systemtest.MakeDriversWithPhones(b, s.commit, s.region, 1)
	// Who sends is known when something was sent; of several, one that does not commits.
	systemtest.MakeDispatchWith(b, s.commit, systemtest.DispatchOptions{Region: s.region})
	testkit.Eventually(b, "it pushes", func() bool { n, _ := mail.Count(); return n == 1 })
	if instances > 1 && mail.ByProject()["i0"] > 0 {
		s.commit = all["i1"]
	}
	s.landed = openLandings(fcm)
	return s
}

// How long it takes from a commit to the request at FCM, in each way to run FirstTap and in the simple design.
// FirstTap's clock starts when the event is made, in the transaction, before its COMMIT.
func BenchmarkPushLatency(b *testing.B) {
	const rounds, crowdRounds = 300, 20
	db := servertest.StartMariaDB(b)
	fast, crowds, slow := stands(b, db)
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
