package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// Whatever an instance does in a day, no statement reads a large table from end to end. The server itself says so: it logs each statement
// that reads more than a few rows, in procedures too, and also the test's own that does. The job supply is not among what runs.
func TestStatementsReadFewRows(t *testing.T) {
	t.Parallel()
	testkit.OnlyInAll(t)
	const stored, most = 6000, 1000
	servertest.OnEach(t, servertest.EveryServer(), func(t *testing.T, kind string) {
		url := servertest.StartDatabase(t, kind).URL(t)
		p := startPushing(t, url)
		for _, setting := range []string{"log_output = 'TABLE'", "long_query_time = 0", fmt.Sprintf("min_examined_row_limit = %d", most)} {
			p.db.exec("SET GLOBAL " + setting)
		}
		if kind == servertest.MariaDB {
			p.db.exec("SET GLOBAL log_slow_disabled_statements = ''") // it leaves out procedures by default
		}
		i := p.start("first-tap", PrivateWebhooks)
		p.liveADay(i, "busan")
		for table, keys := range keysOfTables {
			p.db.multiply(table, keys, stored)
		}
		p.db.exec("UPDATE dispatches SET updated_at = updated_at - 30 * 86400000000 WHERE status = 'COMPLETED'") // the board counts those of a day
		p.db.exec("SET GLOBAL slow_query_log = 1")
		i.endBy(syscall.SIGTERM)
		i = p.start("first-tap", PrivateWebhooks) // its connections have the settings
		p.liveADay(i, "seoul")
		i.endBy(syscall.SIGTERM)
		const readsAll = "events WHERE LENGTH(id) = 0"
		OpenDatabase(t, url).Count(readsAll)
		const ours = "sql_text LIKE '%" + readsAll + "%'"
		testkit.Eventually(t, "the server has logged a statement that reads all events", func() bool { return p.db.Count("mysql.slow_log WHERE "+ours) > 0 })
		p.db.each("SELECT MAX(rows_examined), MAX(sql_text) FROM mysql.slow_log WHERE NOT "+ours+" GROUP BY LEFT(sql_text, 60)", func(scan func(...any) error) error {
			var rows int
			var statement string
			err := scan(&rows, &statement)
			t.Errorf("%d rows are read: %s", rows, statement)
			return err
		})
	})
}

// keysOfTables are the columns that differ from row to row in the tables that grow.
var keysOfTables = map[string][]string{
	"drivers":            {"id", "firebase_uid"},
	"driver_regions":     {"driver_id"},
	"driver_words":       {"driver_id"},
	"devices":            {"id", "driver_id", "push_token"},
	"dispatches":         {"id", "external_id", "claim_id"},
	"dispatch_words":     {"dispatch_id"},
	"claims":             {"id", "dispatch_id", "driver_id"},
	"events":             {"id", "dispatch_id"},
	"notifications":      {"id", "dispatch_id", "event_id"},
	"offers":             {"dispatch_id"},
	"taps":               {"dispatch_id"},
	"audit":              {"id"},
	"idempotency_keys":   {"name", "seed"},
	"webhook_deliveries": {"event_id"},
}

// multiply copies one row of the table n times. Each copy has keys of its own, with the time that the original's have.
func (db *Database) multiply(table string, keys []string, n int) {
	db.t.Helper()
	var columns, values []string
	db.each("SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND extra NOT LIKE '%GENERATED%' AND table_name = '"+table+"'",
		func(scan func(...any) error) error {
			var column string
			err := scan(&column)
			value := "r." + column
			if slices.Contains(keys, column) {
				value = fmt.Sprintf("CONCAT(LEFT(%[1]s, CHAR_LENGTH(%[1]s) - 6), LPAD(n, 6, '0'))", value)
			}
			columns, values = append(columns, column), append(values, value)
			return err
		})
	digit := "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
	db.exec(fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM (SELECT * FROM %[1]s LIMIT 1) r JOIN
		(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d n FROM %[4]s a, %[4]s b, %[4]s c, %[4]s e, %[4]s f) numbers WHERE n < %d`,
		table, strings.Join(columns, ", "), strings.Join(values, ", "), digit, n))
	db.exec("ANALYZE TABLE " + table)
	if got := db.Count(table); got < n {
		db.t.Fatalf("%s has %d rows", table, got)
	}
}

// liveADay does what drivers and the backoffice do, in one region.
func (p *pushing) liveADay(i *Instance, region string) {
	p.t.Helper()
	receiver := StartReceiver(p.t)
	webhook := MakeWebhook(p.t, i, receiver.URL("/"+region))
	drivers := MakeDriversWithPhones(p.t, i, region, 20)
	admin := func(status int, method, path, body string, headers ...string) Response {
		p.t.Helper()
		return i.must(status, method, "/v1/admin/"+path, AdminKey, body, headers...)
	}
	driver := func(status, k int, method, path, body string) {
		p.t.Helper()
		i.must(status, method, "/v1/"+path, drivers[k].Token, body)
	}
	id := MakeDispatchWith(p.t, i, DispatchOptions{Region: region})
	p.allShow(drivers, id, "dispatch.opened")
	for k := range drivers {
		driver(204, k, "POST", "dispatches/"+id+"/seen", "")
	}
	driver(204, 19, "POST", "dispatches/"+id+"/decline", `{"reason_code":"TOO_FAR"}`)
	taps := Together(15, func(k int) Response { return Accept(i, id, drivers[k], 1) })
	winner := slices.IndexFunc(taps, Response.Won)
	driver(200, winner, "POST", "dispatches/"+id+"/start", `{"round":1}`)
	driver(200, winner, "POST", "dispatches/"+id+"/complete", `{"round":1}`)
	p.settle()
	for _, path := range []string{"me", "me/offers", "me/dispatches", "me/dispatches/" + id + "/claim", "dispatches/" + id} {
		driver(200, winner, "GET", path, "")
	}
	for _, path := range []string{
		"board", "board?region=" + region, "dispatches", "dispatches?region=" + region + "&status=COMPLETED", "dispatches?q=" + id, "dispatches/" + id,
		"dispatches/" + id + "/attempts", "dispatches/" + id + "/events", "dispatches/" + id + "/notifications", "dispatches/" + id + "/offers",
		"drivers", "drivers?region=" + region + "&on_duty=true", "drivers?suspended=true", "drivers?erased=true", "drivers?q=" + drivers[0].ID,
		"drivers/" + drivers[0].ID, "drivers/" + drivers[0].ID + "/devices", "drivers/" + drivers[0].ID + "/export", "drivers/" + drivers[0].ID + "/signals",
		"audit", "audit?target=" + id, "jobs", "locks", "notifications", "notifications?status=SENT", "supply", "api-keys",
		"webhooks", "webhooks/" + webhook.ID + "/deliveries",
	} {
		admin(200, "GET", path, "")
	}
	admin(200, "POST", "dispatches/preview", dispatchBody(DispatchOptions{Region: region}))
	p.changes(i, region, drivers[:2])
	var jobs struct{ Items []struct{ Name string } }
	i.get("/v1/admin/jobs", AdminKey, &jobs)
	for _, job := range jobs.Items {
		if job.Name != "supply" { // it runs by itself, and not twice in 50 s
			admin(202, "POST", "jobs/"+job.Name+"/run", "")
		}
	}
	testkit.Eventually(p.t, "the jobs have run", func() bool { return p.db.Count("job_runs WHERE status IN ('QUEUED', 'RUNNING')") == 0 })
	testkit.Eventually(p.t, "the webhook has got all", func() bool { return p.db.Count("webhook_deliveries WHERE status = 'PENDING'") == 0 })
}

// changes does what the backoffice does to dispatches and drivers.
func (p *pushing) changes(i *Instance, region string, drivers []Driver) {
	p.t.Helper()
	changed := func(path, id, action, body string) {
		p.t.Helper()
		version := i.must(200, "GET", path+id, AdminKey, "").header.Get("ETag")
		method := "POST"
		if action == "" {
			method = "PATCH"
		}
		i.must(200, method, path+id+action, AdminKey, body, "If-Match", version, "Idempotency-Key", id+action)
	}
	const ofDispatch, ofDriver = "/v1/admin/dispatches/", "/v1/admin/drivers/"
	id := MakeDispatchWith(p.t, i, DispatchOptions{Region: region, starts: time.Now().Truncate(time.Hour).Add(72 * time.Hour)})
	changed(ofDispatch, id, "", `{"note":"by the gate"}`)
	changed(ofDispatch, id, "/extend", fmt.Sprintf(`{"expires_at":%q}`, time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339)))
	changed(ofDispatch, id, "/assign", fmt.Sprintf(`{"driver_id":%q}`, drivers[0].ID))
	changed(ofDispatch, id, "/unassign", `{}`)
	var d struct{ Round int }
	i.get(ofDispatch+id, AdminKey, &d)
	mustWin(p.t, i, id, drivers[0], d.Round)
	i.must(200, "POST", "/v1/dispatches/"+id+"/withdraw", drivers[0].Token, `{"reason_code":"BREAKDOWN"}`)
	changed(ofDispatch, id, "/cancel", `{"reason_code":"SITE_CLOSED"}`)
	i.must(200, "PUT", "/v1/me/duty", drivers[1].Token, `{"on_duty":false}`)
	changed(ofDriver, drivers[1].ID, "", `{"name":"Kim"}`)
	changed(ofDriver, drivers[1].ID, "/suspend", `{"reason_code":"NO_SHOW"}`)
	changed(ofDriver, drivers[1].ID, "/reinstate", ``)
	i.must(204, "DELETE", ofDriver+drivers[1].ID+"/tokens", AdminKey, "")
	i.must(204, "POST", ofDriver+drivers[1].ID+"/erase", AdminKey, "")
	p.settle()
}
