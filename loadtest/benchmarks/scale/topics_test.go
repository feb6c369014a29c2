package scale

import (
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/systemtest"
)

// offersEnded is how many offers each size makes and ends.
const offersEnded = 5

// What an offer to a large audience and its end cost, by the number of devices in FIRSTTAP_ENDS: fewer than 500 are told of the end one by
// one, the others by a topic. Times are of the processor, of statements and of requests of the push service for each offer; "cleaned" is
// the nightly end of its topic. end-ms is from the winner's answer to the last message of the end.
func BenchmarkEnds(b *testing.B) {
	db := servertest.StartMariaDB(b)
	forEach(b, "FIRSTTAP_ENDS", "499,500", 1, func(b *testing.B, n int) { endMany(b, db.URL(b), n) })
}

func endMany(b *testing.B, url string, n int) {
	b.Helper()
	fcm := systemtest.StartFCM(b)
	pushes := arrivals{at: map[string][]time.Time{}}
	fcm.OnSend(pushes.add)
	i := systemtest.Start(b, systemtest.PushSettings(url, fcm, "demo", "FIRSTTAP_JOB_LOCK=memory")...)
	db := systemtest.OpenDatabase(b, url)
	winners := systemtest.MakeDriversWithPhones(b, i, "gangwon", 1)
	fill(b, url, crowd{name: "ends", drivers: n - len(winners), region: "'gangwon'", phones: 1})
	looks := 0.
	settle := func(what string) {
		testkit.Within(b, 5*time.Minute, what, func() bool {
			looks += 3
			return db.Count("events WHERE next_at IS NOT NULL")+db.Count("notifications WHERE state = 0")+db.Count("topics WHERE state = 0") == 0
		})
	}
	var ends []time.Duration
	spent := map[string]float64{}
	phase := func(name string, work func()) {
		statements := func() (n float64) {
			err := db.DB.QueryRow(`SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN
				('COM_SELECT', 'COM_INSERT', 'COM_INSERT_SELECT', 'COM_UPDATE', 'COM_DELETE', 'COM_REPLACE', 'COM_CALL_PROCEDURE')`).Scan(&n)
			if err != nil {
				b.Fatal(err)
			}
			return n - looks
		}
		cpu, asked, requests := i.CPU(), statements(), fcm.Requests()+fcm.TopicCalls()
		work()
		spent[name+"-cpu-ms"] += (i.CPU() - cpu).Seconds() * 1000
		spent[name+"-statements"] += statements() - asked
		spent[name+"-requests"] += float64(fcm.Requests() + fcm.TopicCalls() - requests)
	}
	offer := func() (id string) {
		id = systemtest.MakeDispatchWith(b, i, systemtest.DispatchOptions{Region: "gangwon"})
		settle("the offer is sent")
		return id
	}
	end := func(id string) {
		if a := systemtest.Accept(i, id, winners[0], 1); !a.Won() {
			b.Fatalf("the only driver who taps gets %s", a)
		}
		won := time.Now()
		settle("the end is sent")
		at := pushes.of(id)
		ends = append(ends, at[len(at)-1].Sub(won))
	}
	clean := func() {
		ask(b, i, "POST", "/v1/admin/jobs/nightly/run", systemtest.AdminKey, "")
		testkit.Within(b, 5*time.Minute, "the topics are cleaned up", func() bool {
			looks++
			return db.Count("topics") == 0
		})
	}
	end(offer()) // opens connections
	clean()
	ends = nil
	for range offersEnded {
		var id string
		phase("offered", func() { id = offer() })
		phase("ended", func() { end(id) })
		phase("cleaned", clean)
	}
	for name, sum := range spent {
		b.ReportMetric(sum/offersEnded, name)
	}
	report(b, "end", ends)
	b.ReportMetric(0, "ns/op")
}
