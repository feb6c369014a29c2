package scale

import (
	"fmt"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/systemtest"
)

// tapsOfPhase is how many taps are measured before, during and after the deletion of history.
const tapsOfPhase = 1000

// What the deletion of FIRSTTAP_PRUNE ended dispatches does to taps of open ones: milliseconds of a tap, how many dispatches were deleted with
// their words a second, and for how many of these rows about them were still to be deleted.
func BenchmarkPrune(b *testing.B) {
	n := int(number(b, "FIRSTTAP_PRUNE", "20000"))
	database := servertest.StartMariaDB(b).URL(b)
	keeps := systemtest.Start(b, "FIRSTTAP_DATABASE_URL="+database, "FIRSTTAP_JOB_LOCK=memory")
	fillHistory(b, database, n+1, 1)
	db := systemtest.OpenDatabase(b, database)
	drivers := systemtest.MakeDrivers(b, keeps, 3*tapsOfPhase)
	phase := func(name string) {
		var took []time.Duration
		for range tapsOfPhase {
			id := systemtest.MakeDispatch(b, keeps)
			began := time.Now()
			a := systemtest.Accept(keeps, id, drivers[0], 1)
			took = append(took, time.Since(began))
			if !a.Won() {
				b.Fatalf("the only driver who taps gets %s", a)
			}
			drivers = drivers[1:]
		}
		report(b, "tap-"+name+"-p50", took)
		b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "tap-"+name+"-p99-ms")
	}
	phase("before")
	deletes := systemtest.Start(b, "FIRSTTAP_DATABASE_URL="+database, "FIRSTTAP_JOB_LOCK=memory", "FIRSTTAP_RETENTION=ended=7d")
	left := func() int {
		return db.Count(fmt.Sprintf("dispatches WHERE status <> 'PENDING' AND updated_at < %d", time.Now().Add(-7*24*time.Hour).UnixMicro()))
	}
	if left() != n {
		b.Fatalf("%d dispatches are to be deleted, want %d", left(), n)
	}
	began := time.Now()
	ask(b, deletes, "POST", "/v1/admin/jobs/retention/run", systemtest.AdminKey, "")
	phase("during")
	took, deleted := time.Since(began), n-left()
	b.ReportMetric(float64(deleted)/took.Seconds(), "dispatches-deleted/s")
	b.ReportMetric(float64(db.Count("removed_dispatches"))/float64(max(deleted, 1)), "begun/deleted")
	if deleted == 0 || deleted == n {
		b.Errorf("%d of %d were deleted while taps were measured: FIRSTTAP_PRUNE must be larger", deleted, n)
	}
	deletes.Kill()
	phase("after")
	b.ReportMetric(0, "ns/op")
}
