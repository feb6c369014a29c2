package scale

import (
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/systemtest"
)

// smallAudience is the drivers of the dispatches that are made while a large audience is told.
const smallAudience = 20

// A dispatch with a large audience, for each number of devices in FIRSTTAP_AUDIENCE, such as 10000,100000: milliseconds from the answer to
// its creation to the first and the last push, the memory that the instance took for it, and how long a dispatch with 20 devices, which is
// made meanwhile, took to its first and its last push.
func BenchmarkAudience(b *testing.B) {
	db := servertest.StartMariaDB(b)
	forEach(b, "FIRSTTAP_AUDIENCE", "1000,10000", 1, func(b *testing.B, n int) { tellMany(b, db.URL(b), n) })
}

func tellMany(b *testing.B, url string, n int) {
	fcm := systemtest.StartFCM(b)
	pushes := arrivals{at: map[string][]time.Time{}}
	fcm.OnSend(pushes.add)
	i := systemtest.Start(b, systemtest.PushSettings(url, fcm, "demo", "FIRSTTAP_JOB_LOCK=memory")...)
	systemtest.MakeDriversWithPhones(b, i, "busan", smallAudience)
	fill(b, url, crowd{name: "many", drivers: n, region: "'gangwon'", phones: 1})
	small := func() (first, last time.Duration) {
		id := systemtest.MakeDispatchWith(b, i, systemtest.DispatchOptions{Region: "busan"})
		made := time.Now()
		testkit.Eventually(b, "the small audience is told", func() bool { return pushes.count(id) == smallAudience })
		at := pushes.of(id)
		return at[0].Sub(made), at[smallAudience-1].Sub(made)
	}
	small() // opens connections
	before := i.Memory()
	id := systemtest.MakeDispatchWith(b, i, systemtest.DispatchOptions{Region: "gangwon"})
	made := time.Now()
	var firsts, lasts []time.Duration
	most := before
	for told := 0; told < n; told = pushes.count(id) {
		most = max(most, i.Memory())
		first, last := small()
		if pushes.count(id) < n {
			firsts, lasts = append(firsts, first), append(lasts, last)
		}
	}
	at := pushes.of(id)
	report(b, "first-push", []time.Duration{at[0].Sub(made)})
	report(b, "last-push", []time.Duration{at[n-1].Sub(made)})
	b.ReportMetric(float64(most-before)/1e6, "MB")
	if len(lasts) > 0 {
		report(b, "small-first", firsts)
		report(b, "small-last", lasts)
		b.ReportMetric(lasts[len(lasts)-1].Seconds()*1000, "small-last-max-ms")
	}
	b.ReportMetric(0, "ns/op")
}
