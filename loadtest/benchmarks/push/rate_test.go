package push

import (
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"firsttap/internal/app"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
	"firsttap/systemtest"
)

func TestMain(m *testing.M) { os.Exit(systemtest.Main(m, app.SignalContext, app.Run)) }

// How many pushes one instance sends a second, of 60,000 that are due, with an FCM latency of 50 ms.
//
// FIRSTTAP_TEST_PROFILE=file writes 8 s of the instance's CPU profile there.
func BenchmarkPushRate(b *testing.B) {
	const phones, dispatches = 480, 130 // sent push by push: 480 is not a large audience yet
	db := servertest.StartMariaDB(b)
	url := db.URL(b)
	fcm := systemtest.StartFCM(b)
	fcm.KeepSends(0)
	fcm.Set(func(k *fcmtest.Knobs) { k.Latency = fcmLatency })
	nowhere := systemtest.Start(b, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_FIREBASE_PROJECT=demo", "FIRSTTAP_FCM_ENDPOINT=http://127.0.0.1:1/v1")
	systemtest.MakeDriversWithPhones(b, nowhere, "seoul", phones)
	for range dispatches {
		systemtest.MakeDispatchWith(b, nowhere, systemtest.DispatchOptions{Region: "seoul", Expires: time.Now().Add(time.Hour)})
	}
	books := systemtest.OpenDatabase(b, url)
	due := func() int { return books.Count("notifications WHERE state=0") }
	testkit.Eventually(b, "all are written", func() bool { return due() == phones*dispatches })
	nowhere.Kill()
	if _, err := books.DB.Exec("UPDATE notifications SET claim='', due_at=? WHERE state=0", time.Now().UnixMicro()); err != nil {
		b.Fatal(err)
	}

	var mu sync.Mutex
	var at []time.Time
	fcm.OnSend(func(r fcmtest.Request) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, r.At)
	})
	before := processorTime(b, db)
	ops := testkit.FreeAddress(b)
	systemtest.Start(b, systemtest.PushSettings(url, fcm, "demo", "FIRSTTAP_OPS_ADDR="+ops, "GOGC=400")...) // the service collects as often
	if path := os.Getenv("FIRSTTAP_TEST_PROFILE"); path != "" {
		profile(b, ops, path)
	}
	testkit.Within(b, 5*time.Minute, "all are sent", func() bool { return fcm.Requests() >= phones*dispatches })
	testkit.Eventually(b, "all results are stored", func() bool { return due() == 0 })
	spent := systemtest.Metric(b, ops, "process_cpu_seconds_total")
	database := (processorTime(b, db) - before).Seconds()

	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(at, time.Time.Compare)
	perSecond := map[int]int{}
	for _, t := range at {
		perSecond[int(t.Sub(at[0])/time.Second)]++
	}
	from, to := len(at)/10, len(at)*9/10
	rate := float64(to-from) / at[to].Sub(at[from]).Seconds()
	b.Logf("%d due, %d requests in %s; between the first and the last tenth %.0f/s; %.0f us of the instance's CPU each, %.0f us of MariaDB's; most under way %d",
		phones*dispatches, len(at), at[len(at)-1].Sub(at[0]).Round(time.Millisecond), rate, spent*1e6/float64(len(at)), database*1e6/float64(len(at)), fcm.Stats().Peak)
	line := ""
	for s := range len(perSecond) {
		line += " " + strconv.Itoa(perSecond[s])
	}
	b.Logf("second by second:%s", line)
	b.ReportMetric(rate, "sends/s")
	b.ReportMetric(0, "ns/op")
}

func processorTime(b *testing.B, db *servertest.Database) time.Duration {
	b.Helper()
	spent, err := db.ProcessorTime()
	if err != nil {
		b.Fatal(err)
	}
	return spent
}

func profile(b *testing.B, ops, path string) {
	b.Helper()
	var taken []byte
	testkit.Eventually(b, "there is a profile", func() bool {
		resp, err := systemtest.Client.Get("http://" + ops + "/debug/pprof/profile?seconds=8")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		taken, err = io.ReadAll(resp.Body)
		return err == nil
	})
	if err := os.WriteFile(path, taken, 0o600); err != nil {
		b.Fatal(err)
	}
}
