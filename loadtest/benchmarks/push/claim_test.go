package push

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/notify/fcmtest"
	"firsttap/systemtest"
)

// mood is FCM's behavior while drivers accept.
type mood struct {
	name     string
	url      string
	settings []string
	fcm      *fcmtest.Server
	drivers  []systemtest.Driver
	// answers are the latencies of winners and losers, p99s each round's p99.
	answers map[string]samples
	p99s    map[string][]float64
}

func moods(b *testing.B, db *servertest.Database, redisURL string) []*mood {
	b.Helper()
	knobs := []struct {
		name string
		set  func(*fcmtest.Knobs)
	}{
		{"log", nil},
		{"healthy", func(k *fcmtest.Knobs) { k.Latency = fcmLatency }},
		{"hangs", func(k *fcmtest.Knobs) { k.Hang = true }},
		{"503", func(k *fcmtest.Knobs) { k.Status = 503 }},
		{"gone", nil},
	}
	var all []*mood
	for _, k := range knobs {
		m := &mood{name: k.name, url: db.URL(b), fcm: systemtest.StartFCM(b), answers: map[string]samples{}, p99s: map[string][]float64{}}
		m.settings = systemtest.PushSettings(m.url, m.fcm, "demo", "FIRSTTAP_REDIS_URL="+redisURL, systemtest.QuickRedis, systemtest.QuickClaims)
		switch {
		case k.set != nil:
			m.fcm.KeepSends(0)
			m.fcm.Set(k.set)
		case k.name == "log":
			m.settings = append(m.settings, "FIRSTTAP_PUSH=log")
		default:
			m.settings = append(m.settings, "FIRSTTAP_FCM_ENDPOINT=http://127.0.0.1:1/v1")
		}
		all = append(all, m)
	}
	return all
}

// round makes the drivers race for n dispatches, each wait after it was made, on an instance that runs alone.
func (m *mood) round(b *testing.B, n int, wait time.Duration) {
	b.Helper()
	i := systemtest.Start(b, m.settings...)
	defer i.Kill()
	if m.drivers == nil {
		m.drivers = systemtest.MakeDriversWithPhones(b, i, "seoul", 20)
	}
	var winners, losers samples
	for k := range n + 3 {
		id := systemtest.MakeDispatch(b, i)
		<-time.After(wait)
		took := make(samples, len(m.drivers))
		answers := systemtest.Together(len(m.drivers), func(k int) systemtest.Response {
			sent := time.Now()
			a := systemtest.Accept(i, id, m.drivers[k], 1)
			took[k] = time.Since(sent)
			return a
		})
		if k < 3 {
			continue // the first one opens connections
		}
		for d, a := range answers {
			switch {
			case a.Won():
				winners.add(took[d])
			case a.Code == "ALREADY_TAKEN":
				losers.add(took[d])
			default:
				b.Fatalf("%s: %s", m.name, a)
			}
		}
	}
	if len(winners) != n {
		b.Fatalf("%s: %d winners of %d", m.name, len(winners), n)
	}
	for who, s := range map[string]samples{"winners": winners, "losers": losers} {
		m.answers[who] = append(m.answers[who], s...)
		m.p99s[who] = append(m.p99s[who], float64(s.at(.99)))
	}
}

func median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

// between is the 95 % bootstrap interval of the ratio of the p99s, over the rounds.
func between(these, those [][]time.Duration) (low, high float64) {
	var ratios []float64
	for range 1000 {
		var a, b samples
		for range these {
			a = append(a, these[rand.N(len(these))]...)
		}
		for range those {
			b = append(b, those[rand.N(len(those))]...)
		}
		ratios = append(ratios, float64(a.at(.99))/float64(b.at(.99)))
	}
	slices.Sort(ratios)
	return ratios[25], ratios[974]
}

// chunks divides into n equal parts.
func (s samples) chunks(n int) [][]time.Duration {
	return slices.Collect(slices.Chunk([]time.Duration(s), max(1, len(s)/n)))
}

// The cost of FCM's moods for a claim, compared with a FirstTap that logs its pushes. One mood after the other, round after
// round, each on an instance that runs alone. Drivers accept while the offer is being pushed, or later. FCM and the drivers
// share the instance's CPU.
func BenchmarkPushClaim(b *testing.B) {
	for name, wait := range map[string]time.Duration{"at once": 0, "later": 40 * time.Millisecond} {
		b.Run(name, func(b *testing.B) { benchClaim(b, wait) })
	}
}

func benchClaim(b *testing.B, wait time.Duration) {
	const rounds, dispatches = 30, 40
	db := servertest.StartMariaDB(b)
	all := moods(b, db, servertest.RedisURL(b))
	for round := range rounds {
		for k := range all {
			all[(round+k)%len(all)].round(b, dispatches, wait)
		}
	}
	base := all[0]
	b.Logf("%d rounds of %d dispatches x 20 taps in each mood", rounds, dispatches)
	for _, m := range all {
		for _, who := range []string{"winners", "losers"} {
			these, those := m.answers[who], base.answers[who]
			ratio := float64(these.at(.99)) / float64(those.at(.99))
			low, high := between(these.chunks(rounds), those.chunks(rounds))
			b.Logf("%-8s %-8s p50 %8s (x%.3f)  p99 %8s  x%.3f (95%%: %.2f to %.2f); median of the rounds' p99 x%.3f", m.name, who,
				brief(these.at(.5)), float64(these.at(.5))/float64(those.at(.5)), brief(these.at(.99)), ratio, low, high,
				median(m.p99s[who])/median(base.p99s[who]))
			b.ReportMetric(ratio, fmt.Sprintf("x-%s-%s", m.name, who))
		}
	}
	b.ReportMetric(0, "ns/op")
}
