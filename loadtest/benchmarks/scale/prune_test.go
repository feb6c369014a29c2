package scale

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/systemtest"
)

const (
	tapsOfBlock = 500
	quietBlocks = 6   // of taps before the deletion of history, and as many after it
	asksAfter   = 25  // taps the benchmark asks whether the deletion has ended
	tappers     = 500 // the drivers tap in turn, because each has a rate limit
)

// What the deletion of the history of FIRSTTAP_PRUNE ended dispatches, with what 30 phones leave of each, does to taps of open ones:
// milliseconds of a tap by blocks of 500 taps, before, during and after the deletion; how many rows of which kind were deleted a second,
// and how many dispatches a minute that is.
func BenchmarkPrune(b *testing.B) {
	n := int(number(b, "FIRSTTAP_PRUNE", "300"))
	database := servertest.StartMariaDB(b).URL(b)
	settings := []string{"FIRSTTAP_DATABASE_URL=" + database, "FIRSTTAP_JOB_LOCK=memory"}
	p := pruning{b: b, keeps: systemtest.Start(b, settings...), db: systemtest.OpenDatabase(b, database)}
	p.runsWhenAsked()
	fillHistory(b, database, n+1, 1)
	p.fillPhones(n)
	rows := p.historyRows()
	p.drivers = systemtest.MakeDrivers(b, p.keeps, tappers)
	p.block(func() bool { return false }) // opens connections
	before := p.quiet("before")
	deletes := systemtest.Start(b, append(settings, "FIRSTTAP_RETENTION=ended=7d,attempts=7d")...)
	ask(b, deletes, "POST", "/v1/admin/jobs/retention/run", systemtest.AdminKey, "")
	var during [][]time.Duration
	for ended := false; !ended; {
		took := p.block(func() bool { ended = ended || p.ended(); return ended })
		if len(took) == tapsOfBlock || len(during) == 0 {
			during = append(during, took)
		}
	}
	p.report("during", during)
	seconds := p.seconds()
	deletes.Kill()
	after := p.quiet("after")
	p.report("without", append(before, after...))
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(rows)) {
		b.Logf("%-18s %8d rows, %7.0f a second", kind, rows[kind], float64(rows[kind])/seconds)
		total += rows[kind]
	}
	for kind, left := range p.historyRows() {
		if left > 0 {
			b.Errorf("%d rows of %s are left", left, kind)
		}
	}
	b.ReportMetric(float64(total)/seconds, "rows-deleted/s")
	b.ReportMetric(60*float64(n)/seconds, "dispatches-deleted/min")
	b.ReportMetric(0, "ns/op")
}

// pruning is taps while history is deleted.
type pruning struct {
	b       *testing.B
	keeps   *systemtest.Instance // it deletes nothing of the history
	db      *systemtest.Database
	drivers []systemtest.Driver
	taps    int
}

// block returns how long tapsOfBlock taps take, or fewer if stop says so.
func (p *pruning) block(stop func() bool) (took []time.Duration) {
	p.b.Helper()
	for len(took) < tapsOfBlock {
		if len(took)%asksAfter == 0 && stop() {
			break
		}
		id := systemtest.MakeDispatch(p.b, p.keeps)
		began := time.Now()
		a := systemtest.Accept(p.keeps, id, p.drivers[p.taps%len(p.drivers)], 1)
		took = append(took, time.Since(began))
		if !a.Won() {
			p.b.Fatalf("the only driver who taps gets %s", a)
		}
		p.taps++
	}
	return took
}

// quiet measures taps while nothing is deleted.
func (p *pruning) quiet(name string) (blocks [][]time.Duration) {
	p.b.Helper()
	for range quietBlocks {
		blocks = append(blocks, p.block(func() bool { return false }))
	}
	p.report(name, blocks)
	return blocks
}

// report reports the p50 and p99 of all taps, and between which figures those of the blocks are.
func (p *pruning) report(name string, blocks [][]time.Duration) {
	p.b.Helper()
	var p50, p99 []time.Duration
	for _, took := range blocks {
		sorted := slices.Sorted(slices.Values(took))
		p50, p99 = append(p50, sorted[len(sorted)/2]), append(p99, sorted[len(sorted)*99/100])
	}
	all := slices.Sorted(slices.Values(slices.Concat(blocks...)))
	middle, last := all[len(all)/2], all[len(all)*99/100]
	p.b.Logf("%-8s %5d taps: p50 %5.1f ms, p99 %5.1f; by blocks p50 %5.1f to %5.1f, p99 %5.1f to %5.1f, its median %5.1f", name, len(all), ms(middle), ms(last),
		ms(slices.Min(p50)), ms(slices.Max(p50)), ms(slices.Min(p99)), ms(slices.Max(p99)), ms(slices.Sorted(slices.Values(p99))[len(p99)/2]))
	p.b.ReportMetric(ms(middle), "tap-"+name+"-p50-ms")
	p.b.ReportMetric(ms(last), "tap-"+name+"-p99-ms")
}

const runOfRetention = "job_runs WHERE job = 'retention'"

// runsWhenAsked lets the job not run by itself, as it would while taps are measured, and forgets its run of the start.
func (p *pruning) runsWhenAsked() {
	p.b.Helper()
	testkit.Eventually(p.b, "the job has run at the start", p.ended)
	for _, statement := range []string{"DELETE FROM " + runOfRetention, "UPDATE jobs SET ended_at = ended_at + 3600000000 WHERE name = 'retention'"} {
		if _, err := p.db.DB.ExecContext(p.b.Context(), statement); err != nil {
			p.b.Fatal(err)
		}
	}
}

// ended reports whether the deletion has ended.
func (p *pruning) ended() bool {
	p.b.Helper()
	if failed := p.db.Count(runOfRetention + " AND (status NOT IN ('QUEUED', 'RUNNING', 'SUCCEEDED') OR result LIKE '%more')"); failed > 0 {
		p.b.Fatal("the job did not delete all in its time: FIRSTTAP_PRUNE must be smaller")
	}
	return p.db.Count(runOfRetention+" AND status = 'SUCCEEDED'") > 0
}

// seconds is how long the deletion took.
func (p *pruning) seconds() (took float64) {
	p.b.Helper()
	if err := p.db.DB.QueryRow("SELECT (ended_at - began_at) / 1000000 FROM " + runOfRetention).Scan(&took); err != nil {
		p.b.Fatal(err)
	}
	return took
}

// historyRows is how many rows there are about dispatches of fillHistory that have ended: their identifiers begin with a year before 2005.
func (p *pruning) historyRows() map[string]int {
	p.b.Helper()
	rows := map[string]int{"dispatches": p.db.Count("dispatches WHERE id < 'dsp_01' AND status <> 'PENDING'")}
	for _, table := range []string{"dispatch_words", "claims", "events", "notifications", "offers", "taps"} {
		rows[table] = p.db.Count(table + " h WHERE dispatch_id < 'dsp_01' AND NOT EXISTS (SELECT 1 FROM dispatches d WHERE d.id = h.dispatch_id AND d.status = 'PENDING')")
	}
	return rows
}

// fillPhones adds what 30 drivers with phones leave of each of the ended dispatches, in the order in which it is written: they were offered
// it, saw it, and were told of its end; the winner got three pushes more. Their taps are in two parts, and a claim has two events more.
func (p *pruning) fillPhones(n int) {
	p.b.Helper()
	ended := time.Now().Add(-30 * 24 * time.Hour).UnixMicro()
	named := func(prefix, number string) string { return "CONCAT('" + prefix + "', LPAD(" + number + ", 26, '0'))" }
	driver := "(n * 7919 + k MOD 30) MOD 100000"
	for from := 0; from < n; from += batch {
		of := func(last int) string {
			return fmt.Sprintf(" FROM %s JOIN seq_0_to_%d s ON s.seq >= 0 WHERE n < %d) d ORDER BY n, k", numbers(from), last, n)
		}
		inner := fmt.Sprintf(" FROM (SELECT n, seq k, %d + n at", ended)
		for _, statement := range []string{
			`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent, state, priority, due_at, claim,
				attempts, result, reason, at, expires_at, created_at, sent_at) SELECT ` + named("ntf_", "n * 100 + k") + ", CONCAT('evt_', LPAD(n, 25, '0'), k DIV 30), " +
				named("dev_", driver) + ", '', " + named("drv_", driver) + ", " + named("dsp_", "n") + `, 1, IF(k < 30, 'dispatch.opened', 'dispatch.taken'), k >= 30, 1,
				0, at + 173400000000 + k, '', 1, 'SENT', '', at, at + 600000000, at, at + 200000` + inner + of(62),
			"INSERT INTO offers (dispatch_id, round, driver_id, seen_at) SELECT " + named("dsp_", "n") + ", 1, " + named("drv_", driver) + ", at + 2000000" + inner + of(29),
			"INSERT INTO taps (dispatch_id, round, driver_id, result, id, at, last_at, count, instance, app_version) SELECT " + named("dsp_", "n") + ", 1, " +
				named("drv_", driver) + ", 'ALREADY_TAKEN', " + named("att_", "n * 100 + k") + ", at, at, 1, 'ins_1', ''" + inner + of(7),
			`INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) SELECT CONCAT('evt_', LPAD(n, 25, '0'), k + 2), ` + named("dsp_", "n") +
				", ELT(k + 1, 'dispatch.accepted', 'dispatch.started'), 1, 'system', '', at" + inner + of(1),
		} {
			if _, err := p.db.DB.ExecContext(p.b.Context(), statement); err != nil {
				p.b.Fatalf("%.200s: %v", statement, err)
			}
		}
	}
	if _, err := p.db.DB.ExecContext(p.b.Context(), "ANALYZE TABLE notifications, offers, taps, events"); err != nil {
		p.b.Fatal(err)
	}
}
