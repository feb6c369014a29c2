package fcmtest_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/notify/fcmtest"
)

// BenchmarkSend measures the throughput of 256 workers with the SDK and a latency of 50 ms, client and server in one
// process. The latency allows 5,120/s; the processors cost the rest.
func BenchmarkSend(b *testing.B) {
	const workers = 256
	s, client := connect(b)
	s.Set(func(k *fcmtest.Knobs) { k.Latency = 50 * time.Millisecond })
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range workers {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if _, err := client.Send(b.Context(), offer(fmt.Sprint("tok", n%100_000), fmt.Sprint("evt", n), 1)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
}

// BenchmarkServer measures the server's part of one send, without a connection.
func BenchmarkServer(b *testing.B) {
	s := fcmtest.New()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		body := fmt.Sprintf(`{"message":{"token":"tok%d","data":{"event_id":"evt%d","type":"dispatch.opened","dispatch_id":"dsp_1",`+
			`"round":"1"},"notification":{"title":"A truck is wanted","body":"Seoul, 09:00"},"android":{"priority":"high","ttl":"600s",`+
			`"notification":{"tag":"dsp_1"}},"apns":{"headers":{"apns-collapse-id":"dsp_1"}}}}`, n%100_000, n/100_000)
		if w, _ := post(b.Context(), s, sendPath, body); w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
	}
}
