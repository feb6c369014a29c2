package scale

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/systemtest"
)

const (
	present = 1000 // dispatches besides those of history: the lists are full at each size
	needles = 10   // the oldest of all: a search for their word passes over everything that came later
)

// What depends on the number of ended dispatches: medians in milliseconds, for each number in FIRSTTAP_HISTORY, such as 0,1000000,10000000.
// They ended a month ago. Each has its words, its claim if a driver had it, and two events. 100 others are open.
func BenchmarkHistory(b *testing.B) {
	measureHistories(b, sizes(b, "FIRSTTAP_HISTORY", "0,20000", 0), func(n int) (ended, open int) { return n, 100 })
}

// What depends on the number of open dispatches, for each number in FIRSTTAP_OPEN, such as 100,10000,100000.
func BenchmarkOpen(b *testing.B) {
	measureHistories(b, sizes(b, "FIRSTTAP_OPEN", "100,1000", 0), func(n int) (ended, open int) { return 1000, n })
}

// history is one database that is measured: its instance, and the drivers who tap.
type history struct {
	b        *testing.B
	n        int
	instance *systemtest.Instance
	drivers  []systemtest.Driver
	taps     int
	took     map[string][]time.Duration
}

// measureHistories measures databases of all the sizes on one server, in turn: a machine is not as fast now as a minute ago.
func measureHistories(b *testing.B, sizes []int, dispatches func(n int) (ended, open int)) {
	const rounds = 100
	server := servertest.StartMariaDB(b)
	var all []*history
	for _, n := range sizes {
		database := server.URL(b)
		h := &history{b: b, n: n, took: map[string][]time.Duration{}}
		h.instance = systemtest.Start(b, "FIRSTTAP_DATABASE_URL="+database, "FIRSTTAP_JOB_LOCK=memory")
		h.drivers = systemtest.MakeDrivers(b, h.instance, rounds+1)
		began := time.Now()
		ended, open := dispatches(n)
		fillHistory(b, database, ended+present+open, open)
		b.Logf("%d dispatches were filled in %s", ended+present+open, time.Since(began).Round(time.Second))
		all = append(all, h)
	}
	for name, request := range historyRequests() {
		for round := range rounds + 1 {
			for _, h := range all {
				if took := request(h); round > 0 { // the first one opens connections
					h.took[name] = append(h.took[name], took)
				}
			}
		}
	}
	for _, h := range all {
		b.Run(strconv.Itoa(h.n), func(b *testing.B) {
			for name, took := range h.took {
				report(b, name, took)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// historyRequests are the requests that are measured. Each returns how long it took.
func historyRequests() map[string]func(*history) time.Duration {
	all := map[string]func(*history) time.Duration{
		"board": func(h *history) time.Duration {
			return ask(h.b, h.instance, "GET", "/v1/admin/board", systemtest.AdminKey, "")
		},
		"tap": (*history).tap,
	}
	for name, query := range map[string]url.Values{
		"list":               {},
		"list-region-status": {"region": {"region 7"}, "status": {"COMPLETED"}},
		"search-rare":        {"q": {"needle"}},
		"search-external-id": {"q": {"ERP-00000001"}},
		"search-common":      {"q": {"강남"}},
		"search-two-common":  {"q": {"강남 gate"}},
		"search-nothing":     {"q": {"nowhere"}},
	} {
		all[name] = func(h *history) time.Duration {
			return ask(h.b, h.instance, "GET", "/v1/admin/dispatches?"+query.Encode(), systemtest.AdminKey, "")
		}
	}
	return all
}

// tap is how long the only tap on a new dispatch takes.
func (h *history) tap() time.Duration {
	id := systemtest.MakeDispatch(h.b, h.instance)
	began := time.Now()
	a := systemtest.Accept(h.instance, id, h.drivers[h.taps], 1)
	took := time.Since(began)
	if !a.Won() {
		h.b.Fatalf("the only driver who taps gets %s", a)
	}
	h.taps++
	return took
}

// fillHistory adds so many dispatches to the database and to the index of dispatches. The last ones have been open for an
// hour, and a driver has seen each of them; the others have ended.
func fillHistory(b *testing.B, database string, total, open int) {
	b.Helper()
	db := systemtest.OpenDatabase(b, database)
	execute := func(format string, args ...any) {
		b.Helper()
		statement := fmt.Sprintf(format, args...)
		if _, err := db.DB.ExecContext(b.Context(), statement); err != nil {
			b.Fatalf("%.200s: %v", statement, err)
		}
	}
	execute("SET GLOBAL innodb_buffer_pool_size = %d", 512<<20) // the server of tests has little memory
	named := func(prefix string) string { return "CONCAT('" + prefix + "', LPAD(n, 26, '0'))" }
	ended := time.Now().Add(-30 * 24 * time.Hour).UnixMicro()
	opened := time.Now().Add(-time.Hour).UnixMicro()
	won, running := "n MOD 10 < 7", fmt.Sprintf("n >= %d", total-open)
	// The words of the external id, the address and the note below, as repository/search/words.go makes them, but not the ones that begin within others.
	words := []string{
		"CONCAT('erp-', LPAD(n, 8, '0'))", "LPAD(n, 8, '0')", "CONCAT('erp', LPAD(n, 8, '0'))", "CONCAT('서울', IF(n MOD 3, '서초구', '강남구'), '테헤란로s', n MOD 1000)",
		"CONCAT(IF(n MOD 3, '서초구', '강남구'), '테헤란로s', n MOD 1000)", "CONCAT('테헤란로s', n MOD 1000)",
		"CONCAT('s', n MOD 1000)", "'gate'", "CONCAT('g', n MOD 50)", fmt.Sprintf("IF(n < %d, 'needle', 'usual')", needles),
	}
	for from := 0; from < total; from += batch {
		rows := fmt.Sprintf(" FROM %s WHERE n < %d", numbers(from), total)
		execute(`INSERT INTO dispatches (id, external_id, region, vehicle_class, site_address, work_starts_at, work_ends_at, fee_amount, fee_currency,
			note, opens_at, expires_at, status, round, version, claim_id, accepted_by, accepted_at, created_at, updated_at)
			SELECT %[1]s, CONCAT('ERP-', LPAD(n, 8, '0')), CONCAT('region ', n MOD 20), '45m',
			CONCAT('서울 ', IF(n MOD 3, '서초구', '강남구'), ' 테헤란로 S', n MOD 1000), at, at + 1, 350000, 'KRW',
			CONCAT('Gate G', n MOD 50, IF(n < %[7]d, ' needle', ' usual')), IF(%[6]s, %[8]d, at), IF(%[6]s, %[8]d + 86400000000, at + 600000000),
			IF(%[6]s, 'PENDING', IF(%[5]s, 'COMPLETED', IF(n MOD 2, 'EXPIRED', 'CANCELED'))), 1, 3,
			IF(%[5]s AND NOT %[6]s, %[2]s, NULL), IF(%[5]s AND NOT %[6]s, CONCAT('drv_', LPAD(n MOD 1000, 26, '0')), NULL),
			IF(%[5]s AND NOT %[6]s, at + 1000000, NULL), at, at + 2000000
			FROM (SELECT n, %[4]d + n at%[3]s) d ORDER BY n`, named("dsp_"), named("clm_"), rows, ended, won, running, needles, opened)
		parts := make([]string, len(words))
		for k, word := range words {
			parts[k] = "SELECT " + word + " word, " + named("dsp_") + " id" + rows
		}
		execute("INSERT INTO dispatch_words (word, dispatch_id) SELECT word, id FROM (%s) w ORDER BY word, id", strings.Join(parts, " UNION ALL "))
		execute(`INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at) SELECT %s, %s, 1,
			CONCAT('drv_', LPAD(n MOD 1000, 26, '0')), n DIV 1000 + 1, 'WON', %d + n%s AND %s AND NOT %s ORDER BY n`,
			named("clm_"), named("dsp_"), ended, rows, won, running)
		execute("INSERT INTO offers (dispatch_id, round, driver_id, seen_at) SELECT %s, 1, %s, %d%s AND %s ORDER BY n",
			named("dsp_"), named("drv_"), opened+60_000_000, rows, running)
		for event, of := range []string{"dispatch.opened", "dispatch.completed"} {
			execute(`INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) SELECT CONCAT('evt_', LPAD(n, 25, '0'), %d), %s, '%s', 1,
				'system', '', %d + n%s ORDER BY n`, event, named("dsp_"), of, ended, rows)
		}
	}
	execute("ANALYZE TABLE dispatches, dispatch_words, claims, events, offers")
	execute("SET GLOBAL innodb_max_dirty_pages_pct = 0") // until the server has written to the disk what was filled
	testkit.Within(b, 10*time.Minute, "the server has written what was filled", func() bool {
		var dirty int
		query := "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_buffer_pool_pages_dirty'"
		if err := db.DB.QueryRowContext(b.Context(), query).Scan(&dirty); err != nil {
			b.Fatal(err)
		}
		return dirty < 100
	})
	execute("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")
}
