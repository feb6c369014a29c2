package scale

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/app"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
	"firsttap/systemtest"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(phonesOf); address != "" {
		os.Exit(runPhones(address))
	}
	os.Exit(systemtest.Main(m, app.SignalContext, app.Run))
}

const (
	eligible = 200 // drivers in Seoul, each with a phone
	repeats  = 20
	batch    = 100_000
)

// What depends on the number of drivers: medians in milliseconds, for each number in FIRSTTAP_SCALE, such as 1000,10000,100000,1000000. The
// drivers are on duty in 100 regions, and 200 are eligible for each dispatch. first-push and last-push are from the request that makes
// the dispatch to the arrival at the push service.
//
// It also runs in a checkout of a version that has no index of drivers.
func BenchmarkScale(b *testing.B) {
	db := servertest.StartMariaDB(b)
	forEach(b, "FIRSTTAP_SCALE", "1000,10000", eligible, func(b *testing.B, n int) { measure(b, db.URL(b), n) })
}

// sizes returns the numbers in the variable, or the usual ones.
func sizes(b *testing.B, variable, usual string, least int) (all []int) {
	b.Helper()
	for size := range strings.SplitSeq(cmp.Or(os.Getenv(variable), usual), ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < least {
			b.Fatalf("%s: %q is no number from %d on", variable, size, least)
		}
		all = append(all, n)
	}
	return all
}

// forEach runs a benchmark for each number in the variable.
func forEach(b *testing.B, variable, usual string, least int, run func(b *testing.B, n int)) {
	for _, n := range sizes(b, variable, usual, least) {
		b.Run(strconv.Itoa(n), func(b *testing.B) { run(b, n) })
	}
}

func measure(b *testing.B, url string, n int) {
	fcm := systemtest.StartFCM(b)
	pushes := arrivals{at: map[string][]time.Time{}}
	fcm.OnSend(pushes.add)
	i := systemtest.Start(b, systemtest.PushSettings(url, fcm, "demo", "FIRSTTAP_JOB_LOCK=memory")...)
	drivers := systemtest.MakeDriversWithPhones(b, i, "seoul", eligible)
	began := time.Now()
	fill(b, url, crowd{name: "fill", drivers: n - eligible, region: "CONCAT('region ', n MOD 100)", phones: 10})
	b.Logf("%d drivers were filled in %s", n, time.Since(began).Round(time.Second))
	order := fmt.Sprintf(`{"region":"seoul","vehicle_class":"45m","site_address":"Seoul 1","work_starts_at":%q,"work_ends_at":%q,`+
		`"fee":{"amount":350000,"currency":"KRW"}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))
	for name, request := range map[string]func() time.Duration{
		"preview": func() time.Duration {
			return ask(b, i, "POST", "/v1/admin/dispatches/preview", systemtest.AdminKey, order)
		},
		"board": func() time.Duration { return ask(b, i, "GET", "/v1/admin/board", systemtest.AdminKey, "") },
		"drivers-search": func() time.Duration {
			return ask(b, i, "GET", "/v1/admin/drivers?region=region%207&on_duty=true", systemtest.AdminKey, "")
		},
		"drivers-by-name": func() time.Duration {
			return ask(b, i, "GET", "/v1/admin/drivers?q=Driver+777", systemtest.AdminKey, "")
		},
		"drivers-by-nobody": func() time.Duration {
			return ask(b, i, "GET", "/v1/admin/drivers?q=nobody", systemtest.AdminKey, "")
		},
		"my-offers": func() time.Duration { return ask(b, i, "GET", "/v1/me/offers", drivers[0].Token, "") },
	} {
		var took []time.Duration
		request() // opens connections
		for range repeats {
			took = append(took, request())
		}
		report(b, name, took)
	}
	var first, last []time.Duration
	for k := range repeats + 1 {
		began := time.Now()
		id := systemtest.MakeDispatch(b, i)
		testkit.Eventually(b, "all are told", func() bool { return len(pushes.of(id)) >= eligible })
		if k > 0 {
			at := pushes.of(id)
			first, last = append(first, at[0].Sub(began)), append(last, at[eligible-1].Sub(began))
		}
	}
	report(b, "first-push", first)
	report(b, "last-push", last)
	b.ReportMetric(0, "ns/op")
}

func report(b *testing.B, name string, took []time.Duration) {
	median, _ := middleAndLast(took)
	b.ReportMetric(median.Seconds()*1000, name+"-ms")
}

// middleAndLast sorts the times.
func middleAndLast(took []time.Duration) (median, last time.Duration) {
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// ask returns how long the request takes, and fails the benchmark unless it succeeds.
func ask(b *testing.B, i *systemtest.Instance, method, path, token, body string) time.Duration {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), method, i.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	began := time.Now()
	response, err := systemtest.Client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	took := time.Since(began)
	if err != nil || response.StatusCode/100 != 2 {
		b.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, text, err)
	}
	return took
}

// arrivals are when the push service accepts the pushes of each dispatch.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (a *arrivals) add(r fcmtest.Request) {
	if !r.Accepted {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := r.Data["dispatch_id"]
	a.at[id] = append(a.at[id], r.At)
}

func (a *arrivals) count(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at[id])
}

func (a *arrivals) of(id string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(slices.Values(a.at[id]), time.Time.Compare)
}

// crowd describes the drivers on duty that fill writes by SQL.
type crowd struct {
	name            string // of 8 letters with its digits at most, in identifiers
	drivers, phones int    // one of so many drivers has a phone
	region          string // SQL of the number n of a driver
}

// fill adds the drivers to the database and to the index of drivers.
func fill(b *testing.B, url string, c crowd) {
	b.Helper()
	db := systemtest.OpenDatabase(b, url)
	execute := func(statement string, args ...any) {
		b.Helper()
		if _, err := db.DB.ExecContext(b.Context(), statement, args...); err != nil {
			b.Fatalf("%.200s: %v", statement, err)
		}
	}
	const duty = "1"
	id := "CONCAT('drv_" + c.name + "', LPAD(n, 22, '0'))"
	for from := 0; from < c.drivers; from += batch {
		rows := fmt.Sprintf(" FROM %s WHERE n < %d", numbers(from), c.drivers)
		for _, word := range []string{"'driver'", "CAST(n AS CHAR)", "'8210'", "'~0128'"} {
			execute("INSERT IGNORE INTO driver_words (word, driver_id) SELECT " + word + ", " + id + rows)
		}
		execute("INSERT INTO drivers (id, name, phone, regions, vehicle_class, locale, on_duty, version, created_at, updated_at) SELECT " + id +
			`, CONCAT('Driver ', n), '+8210', CONCAT('["', ` + c.region + `, '"]'), '45m', 'ko', ` + duty + ", 1, 1, 1" + rows)
		execute(`INSERT INTO devices (id, driver_id, installation_id, platform, push_token, app_version, locale, created_at, updated_at)
			SELECT CONCAT('dev_` + c.name + `', LPAD(n, 22, '0')), ` + id + ", 'app', 'android', CONCAT('" + c.name + "-', n), '', '', 1, 1" + rows + fmt.Sprintf(" AND n MOD %d = 0", c.phones))
		for _, region := range []string{"''", c.region} {
			execute("INSERT INTO driver_regions (region, vehicle_class, on_duty, driver_id) SELECT " + region + ", '45m', " + duty + ", " + id + rows)
		}
	}
	execute("DELETE FROM driver_counts")
	execute(`INSERT INTO driver_counts (region, vehicle_class, working_height_m, slot, drivers, on_duty)
		SELECT region, IF(region = '', vehicle_class, ''), -1, CRC32(driver_id) MOD 8, COUNT(*), SUM(on_duty) FROM driver_regions GROUP BY 1, 2, 4`)
	execute("ANALYZE TABLE driver_regions, driver_counts")
	execute("ANALYZE TABLE drivers, driver_words, devices")
}

// numbers is a table of batch numbers n, from the given one on.
func numbers(from int) string {
	var digits, sum []string
	for i, place := range []int{1, 10, 100, 1000, 10_000} {
		digits = append(digits, fmt.Sprintf("(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6"+
			" UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) t%d", i))
		sum = append(sum, fmt.Sprintf("t%d.d * %d", i, place))
	}
	return fmt.Sprintf("(SELECT %d + %s n FROM %s) numbers", from, strings.Join(sum, " + "), strings.Join(digits, ", "))
}
