package scale

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"firsttap/systemtest"
)

// meter is what servers and instances have done until some time.
type meter struct {
	cost
	seconds                            float64
	instanceCPU, databaseCPU, redisCPU time.Duration
	redisCalls                         map[string]float64 // by command
	size                               map[string]tableSize
}

type tableSize struct{ rows, bytes float64 }

// activity is what the servers have done until now.
func (d *day) activity() (c cost) {
	d.b.Helper()
	d.read("SHOW GLOBAL STATUS", func(scan func(...any) error) error {
		var name, text string
		err := scan(&name, &text)
		value, _ := strconv.ParseFloat(text, 64)
		switch name {
		case "Com_select", "Com_insert", "Com_insert_select", "Com_update", "Com_delete", "Com_replace", "Com_call_procedure":
			c.statements += value
		case "Handler_write", "Handler_update", "Handler_delete":
			c.rows += value
		}
		return err
	})
	c.commands = d.infoOfRedis("stats", "Stats", "total_commands_processed")
	return c
}

func (d *day) meter() meter {
	d.b.Helper()
	m := meter{size: map[string]tableSize{}, cost: d.activity()}
	for _, i := range d.instances {
		m.instanceCPU += i.CPU()
	}
	m.redisCalls = d.redisCalls()
	var pidFile string
	if err := d.db.DB.QueryRow("SELECT @@pid_file").Scan(&pidFile); err != nil {
		d.b.Fatal(err)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		d.b.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		d.b.Fatalf("%s: %v", pidFile, err)
	}
	m.databaseCPU = systemtest.ProcessCPU(d.b, pid)
	m.redisCPU = time.Duration((d.infoOfRedis("cpu", "CPU", "used_cpu_user") + d.infoOfRedis("cpu", "CPU", "used_cpu_sys")) * float64(time.Second))
	var tables []string
	d.read("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()", func(scan func(...any) error) error {
		tables = append(tables, "")
		return scan(&tables[len(tables)-1])
	})
	for _, table := range tables {
		m.size[table] = tableSize{rows: float64(d.db.Count(table))}
	}
	d.read("ANALYZE TABLE "+strings.Join(tables, ", "), func(scan func(...any) error) error { var s [4]any; return scan(&s[0], &s[1], &s[2], &s[3]) })
	d.read("SELECT table_name, data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE()", func(scan func(...any) error) error {
		var name string
		var size float64
		err := scan(&name, &size)
		m.size[name] = tableSize{m.size[name].rows, size}
		return err
	})
	return m
}

// read reads the rows of a query.
func (d *day) read(query string, row func(scan func(...any) error) error) {
	d.b.Helper()
	rows, err := d.db.DB.Query(query)
	if err != nil {
		d.b.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			d.b.Fatalf("%s: %v", query, err)
		}
	}
	if err := rows.Err(); err != nil {
		d.b.Fatalf("%s: %v", query, err)
	}
}

// redisCalls returns how often each command was called.
func (d *day) redisCalls() map[string]float64 {
	d.b.Helper()
	info, err := d.redis.InfoMap(d.b.Context(), "commandstats").Result()
	if err != nil {
		d.b.Fatal(err)
	}
	calls := map[string]float64{}
	for name, stats := range info["Commandstats"] {
		n, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		calls[strings.TrimPrefix(name, "cmdstat_")], err = strconv.ParseFloat(n, 64)
		if err != nil {
			d.b.Fatalf("Redis says of %s %q: %v", name, stats, err)
		}
	}
	return calls
}

// infoOfRedis returns a number that Redis's INFO prints in a section, below the section's title.
func (d *day) infoOfRedis(section, title, name string) float64 {
	d.b.Helper()
	info, err := d.redis.InfoMap(d.b.Context(), section).Result()
	if err != nil {
		d.b.Fatal(err)
	}
	figure, err := strconv.ParseFloat(info[title][name], 64)
	if err != nil {
		d.b.Fatalf("Redis says of %s %q: %v", name, info[title][name], err)
	}
	return figure
}

func (m meter) minus(o meter) meter {
	m.cost = m.plus(-1, o.cost)
	m.instanceCPU, m.databaseCPU, m.redisCPU = m.instanceCPU-o.instanceCPU, m.databaseCPU-o.databaseCPU, m.redisCPU-o.redisCPU
	for command, n := range o.redisCalls {
		m.redisCalls[command] -= n
	}
	for table, s := range o.size {
		m.size[table] = tableSize{m.size[table].rows - s.rows, m.size[table].bytes - s.bytes}
	}
	return m
}

// sampleLag notes how long the oldest push that nobody sends has been due, and how many answered taps are not stored.
func (d *day) sampleLag() {
	d.mu.Lock()
	answered := d.counts["taps"] - d.counts["no answer"] // a tap is counted once it has its answer
	d.mu.Unlock()
	var micros float64
	var stored int
	// The next_at of a push that was never leased is its turn, a number far below any time.
	err := d.db.DB.QueryRow(`SELECT COALESCE(UNIX_TIMESTAMP(NOW(6)) * 1000000 - MIN(GREATEST(next_at, created_at)), 0),
		(SELECT COALESCE(SUM(count), 0) FROM taps) FROM notifications
		WHERE state = 0 AND claim = '' AND next_at <= UNIX_TIMESTAMP(NOW(6)) * 1000000`).Scan(&micros, &stored)
	if err != nil {
		d.b.Errorf("the lag: %v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.oldest = max(d.oldest, time.Duration(micros)*time.Microsecond)
	d.unstored = max(d.unstored, answered-stored)
}

// report prints what was true of the day.
func (d *day) report(spent meter) {
	d.b.Helper()
	var words []string
	for _, what := range slices.Sorted(maps.Keys(d.counts)) {
		words = append(words, fmt.Sprintf("%s %d", what, d.counts[what]))
	}
	d.b.Logf("what happened: %s", strings.Join(words, ", "))
	for _, what := range slices.Sorted(maps.Keys(d.took)) {
		took := d.took[what]
		slices.Sort(took)
		d.b.Logf("%-10s p50 %7.2f ms, p99 %7.2f ms, most %7.2f ms, of %d", what, ms(took[len(took)/2]), ms(took[len(took)*99/100]), ms(took[len(took)-1]), len(took))
	}
	d.b.Logf("the oldest push that was due and not leased, sampled each second: %.0f ms; the most taps that were answered and not stored: %d", ms(d.oldest), d.unstored)
	made := float64(d.counts["made"])
	for _, table := range slices.Sorted(maps.Keys(spent.size)) {
		if s := spent.size[table]; s.rows != 0 {
			d.b.Logf("%-16s grew by %6.1f rows and %7.0f bytes for each dispatch", table, s.rows/made, s.bytes/made)
		}
	}
}

func ms(t time.Duration) float64 { return t.Seconds() * 1000 }

// cost is what servers do for something.
type cost struct{ statements, rows, commands float64 }

func (c cost) plus(times float64, o cost) cost {
	return cost{c.statements + times*o.statements, c.rows + times*o.rows, c.commands + times*o.commands}
}

// measurePrices measures what the instances cost when nobody asks for anything, in a second, and what each kind of reading costs.
func (d *day) measurePrices(reader systemtest.Driver) {
	d.b.Helper()
	measure := func(work func()) (cost, float64) {
		before, began := d.activity(), time.Now()
		work()
		after := d.activity()
		return after.plus(-1, before), time.Since(began).Seconds()
	}
	c, seconds := measure(func() {
		quiet := time.NewTimer(10 * time.Second)
		<-quiet.C
	})
	d.idle = cost{}.plus(1/seconds, c)
	d.b.Logf("%d instances that nobody asks: %.1f statements, %.1f rows and %.0f commands of Redis a second", len(d.instances), d.idle.statements, d.idle.rows, d.idle.commands)
	d.prices = map[string]cost{}
	for what, request := range map[string]func() systemtest.Response{
		"offers": func() systemtest.Response { return d.any().Request("GET", "/v1/me/offers", reader.Token, "") },
		"board":  func() systemtest.Response { return d.any().Request("GET", "/v1/admin/board", systemtest.AdminKey, "") },
		"list":   func() systemtest.Response { return d.any().Request("GET", pendingPath, systemtest.AdminKey, "") },
	} {
		const times = 200
		c, seconds := measure(func() {
			for range times {
				if r := request(); !r.Succeeded() {
					d.b.Fatalf("%s: %s", what, r)
				}
			}
		})
		d.prices[what] = cost{}.plus(1./times, c.plus(-seconds, d.idle))
		d.b.Logf("%-6s costs %.1f statements and %.1f commands of Redis", what, d.prices[what].statements, d.prices[what].commands)
	}
}

// modeled is what the cost model says that the day has cost.
func (d *day) modeled(spent meter) cost {
	n := func(what string) float64 { return float64(d.counts[what]) }
	asked := func(what string) float64 { return float64(len(d.took[what])) }
	const phones = perRegion
	limited := cost{0, 0, 4} // a driver's request at an instance that has not asked Redis for their rate of late: a script of three commands
	batch := cost{2, 1, 0}   // of taps
	c := cost{}.plus(spent.seconds, d.idle)
	c = c.plus(n("made")+n("no-shows"), cost{9, 3 + 2*phones, 0}) // TestBudgetByAudience
	c.rows += spent.size["dispatch_words"].rows
	c = c.plus(n("won"), cost{13, 5 + 2*phones, 4}).plus(n("started"), cost{6, 3, 0}).plus(n("completed"), cost{5, 3, 0})
	c = c.plus(max(0, spent.size["taps"].rows-n("won")), batch).plus(asked("decline"), cost{3, 1, 0})
	for what, price := range d.prices {
		c = c.plus(asked(what), price)
	}
	return c.plus(n("taps")+asked("offers")+asked("decline")+n("started")+n("completed"), limited)
}

// extrapolate compares with the cost model, and says what the whole country takes.
func (d *day) extrapolate(spent meter, perMinute float64) {
	d.b.Helper()
	made := float64(d.counts["made"])
	model := d.modeled(spent)
	for _, c := range []struct {
		what              string
		measured, modeled float64
	}{
		{"statements", spent.statements, model.statements}, {"rows", spent.rows, model.rows}, {"Redis", spent.commands, model.commands},
	} {
		d.b.Logf("%-10s %7.1f for each dispatch, by the model %7.1f: %.2f times", c.what, c.measured/made, c.modeled/made, c.measured/c.modeled)
	}
	words := []string{}
	for command, n := range spent.redisCalls {
		if n >= made/10 {
			words = append(words, fmt.Sprintf("%s %.1f", command, n/made))
		}
	}
	slices.Sort(words)
	d.b.Logf("Redis for each dispatch: %s", strings.Join(words, ", "))
	perDispatch := func(t time.Duration) float64 { return t.Seconds() / made }
	cores := func(t time.Duration) float64 { return perMinute / 60 * perDispatch(t) }
	bytes := 0.
	for _, s := range spent.size {
		bytes += s.bytes
	}
	d.b.Logf("CPU for each dispatch: %.1f ms of the instances, %.1f of MariaDB, %.1f of Redis; the machine had %.1f", 1000*perDispatch(spent.instanceCPU),
		1000*perDispatch(spent.databaseCPU), 1000*perDispatch(spent.redisCPU), float64(runtime.NumCPU())*1000*spent.seconds/made)
	d.b.Logf("%.0f dispatches a minute take %.1f cores of instances, %.1f of MariaDB and %.2f of Redis; tables grow by %.0f GB a day; FCM gets %.0f messages a minute, "+
		"of 600,000 by default", perMinute, cores(spent.instanceCPU), cores(spent.databaseCPU), cores(spent.redisCPU), perMinute*24*60*bytes/made/1e9,
		perMinute*float64(d.counts["pushes"])/made)
}
