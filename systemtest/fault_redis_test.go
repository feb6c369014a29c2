package systemtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/servertest"
	"firsttap/testkit"
)

// redisAt is a client that waits for the server's answer and repeats no command: the second answer would be about the first command's
// effect.
func redisAt(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = testkit.Patience, testkit.Patience, testkit.Patience
	opts.MaxRetries = -1
	c := redis.NewClient(opts)
	t.Cleanup(func() { c.Close() })
	return c
}

// everyKeyEnds fails the test if a key has no TTL.
func everyKeyEnds(t *testing.T, c *redis.Client) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "dispatch:lock:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if ttl := c.PTTL(t.Context(), k).Val(); ttl == -1 { // -2: it has just expired
			t.Errorf("%s has no end", k)
		}
	}
}

// Redis fails in the middle of races, in each possible way. That costs speed, never a second winner or an error. No
// other test runs beside these races.
func TestRedisFailsMidRace(t *testing.T) {
	faults := map[string]func(r *servertest.Redis, c *redis.Client) (undo func()){
		"frozen": func(r *servertest.Redis, _ *redis.Client) func() { r.Freeze(); return r.Thaw },
		"killed": func(r *servertest.Redis, _ *redis.Client) func() { r.Kill(); return r.Start },
		"flushed": func(_ *servertest.Redis, c *redis.Client) func() {
			c.FlushAll(context.Background())
			return func() {}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			server := servertest.StartRedis(t)
			c := redisAt(t, server.URL())
			instances, db := startTwo(t, mariaDB(t), "FIRSTTAP_REDIS_URL="+server.URL(), QuickRedis)
			drivers := MakeDrivers(t, instances[0], 30)
			for range testkit.Scale(2, 15) {
				id := MakeDispatch(t, instances[0])
				var undo func()
				var broken sync.WaitGroup
				answers := Together(len(drivers), func(k int) Response {
					if k == 5 { // the fault comes between the requests
						broken.Add(1)
						defer broken.Done()
						undo = fault(server, c)
					}
					return Accept(instances[k%2], id, drivers[k], 1)
				})
				broken.Wait()
				oneWinner(t, db, id, drivers, answers)
				// Redis stays away: every claim is decided by the database.
				raceRound(t, db, instances, drivers)
				if name != "flushed" {
					testkit.Eventually(t, "readyz is 200 and degraded", func() bool {
						a := instances[0].readyz()
						return a.status == 200 && a.Status == "degraded"
					})
				}
				undo()
				testkit.Eventually(t, "readyz is ok again", func() bool {
					return instances[0].readyz().Status == "ok" && instances[1].readyz().Status == "ok"
				})
			}
			everyKeyEnds(t, c)
		})
	}
}

// Redis' keys may be old, foreign or nonsense. That costs a round trip to the database, never the dispatch.
func TestInvalidRedisKeysAreNotTrusted(t *testing.T) {
	t.Parallel()
	url, redisURL := mariaDB(t), servertest.StartRedis(t).URL()
	i := Start(t, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_REDIS_URL="+redisURL)
	b, c := OpenDatabase(t, url), redisAt(t, redisURL)
	values := map[string]func(before, me string) string{
		"an old round's marker": func(before, _ string) string { return "taken:" + before + ":1" },
		"an old round's claim":  func(before, _ string) string { return "claim:" + before + ":1.clm_0" },
		"my own claim":          func(_, me string) string { return "claim:" + me + ":2.clm_0" },
		"my own marker":         func(_, me string) string { return "taken:" + me + ":2" },
		"nonsense":              func(_, _ string) string { return "nonsense" },
		"nothing":               func(_, _ string) string { return "" },
	}
	for name, value := range values {
		drivers := MakeDrivers(t, i, 2)
		id := MakeDispatch(t, i)
		mustWin(t, i, id, drivers[0], 1)
		if a := withdraw(i, id, drivers[0]); a.Round != 2 {
			t.Fatal(a)
		}
		if err := c.Set(t.Context(), keyOf(id), value(drivers[0].ID, drivers[1].ID), time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		a := Accept(i, id, drivers[1], 2)
		if !a.Won() {
			t.Errorf("%s stood in the way: %s", name, a)
			continue
		}
		b.mustBeWonBy(id, 2, drivers[1].ID, a.Claim.ID)
	}
	drivers, id := MakeDrivers(t, i, 1), MakeDispatch(t, i)
	if err := c.Set(t.Context(), keyOf(id), "claim:drv_rival:0.clm_0", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if a := Accept(i, id, drivers[0], 1); a.Code != "ALREADY_TAKEN" || *a.Final {
		t.Errorf("a rival's claim is being decided: %s", a)
	}
}

// A driver that holds the lock, though its reply was lost, must not be refused in favor of another.
func TestReplyOfSetIsLost(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.Addr())
	url := mariaDB(t)
	i := Start(t, "FIRSTTAP_DATABASE_URL="+url, "FIRSTTAP_REDIS_URL="+proxy.URL(server.URL()))
	b, c := OpenDatabase(t, url), redisAt(t, server.URL())
	drivers := MakeDrivers(t, i, 2)
	for range testkit.Scale(3, 30) {
		testkit.Eventually(t, "redis is used", func() bool { return i.readyz().Status == "ok" })
		id := MakeDispatch(t, i)
		cut := proxy.CutReply(keyOf(id))
		a := Accept(i, id, drivers[0], 1)
		testkit.Await(t, "the reply was cut", cut.Done())
		if !a.Won() {
			t.Fatalf("refused by its own key: %s", a)
		}
		if a := Accept(i, id, drivers[1], 1); a.Code != "ALREADY_TAKEN" {
			t.Fatal(a)
		}
		b.mustBeWonBy(id, 1, drivers[0].ID, a.Claim.ID)
	}
	everyKeyEnds(t, c)
}

// commands counts the Redis commands about a dispatch: those that decide or mark, and the others. The server logs every command, and those
// of scripts beside them.
func commands(t *testing.T, c *redis.Client, id string) (decide, others int) {
	t.Helper()
	logged, err := c.SlowLogGet(t.Context(), -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range logged {
		switch {
		case !strings.Contains(strings.Join(l.Args, " "), id):
		case strings.EqualFold(l.Args[0], "set"):
			decide++
		default:
			others++
		}
	}
	return decide, others
}

// verifies is the statement that checks whether claims still exist, and with which the ledger reads the rounds of a batch.
const verifies = "SELECT `id`,`status`,`round`,`accepted_by` FROM `dispatches` WHERE id IN%"

// The exact cost of a race: one call and at most one read for the winner; no SQL for a loser, and at most one Redis
// command, or none where the process knows the winner.
func TestCostOfARace(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	c := redisAt(t, server.URL())
	both, b := startTwo(t, servertest.StartMariaDB(t).URL(t), "FIRSTTAP_REDIS_URL="+server.URL(), lasting, "FIRSTTAP_JOB_LOCK=table") // in Redis, jobs would count
	one := both[0]
	drivers := MakeDrivers(t, one, 30)
	for setting, value := range map[string]string{"slowlog-max-len": "100000", "slowlog-log-slower-than": "0"} {
		if err := c.ConfigSet(t.Context(), setting, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.exec("SET GLOBAL log_output = 'TABLE'")
	// The relay, the courier, the ledger and the verification of claims have connections of their own, which do not count. Of a transaction
	// that was open when the log began or ended, only one end may be logged.
	const relays = `(SELECT thread_id FROM mysql.general_log WHERE argument LIKE 'UPDATE events%' OR argument LIKE '` + verifies + `'
		OR argument LIKE '% FROM events WHERE next_at%' OR argument LIKE '% FROM events FORCE INDEX (ix_events_due)%'
		OR argument LIKE '%webhook_events%' OR argument LIKE '%FROM events e FORCE INDEX (PRIMARY)%' OR argument LIKE '% FROM events e JOIN dispatches%' OR argument LIKE '% FROM notifications %' OR argument LIKE '% FROM topics %' OR argument LIKE '% INTO taps %'
		OR argument LIKE 'SELECT id, round FROM ` + "`dispatches`" + `%')` // with which a transaction of the ledger begins
	// What an instance does every few seconds does not count, even on a connection that the race has used: the jobs, with their
	// ledger, and the reading of revoked tokens. Only connections that have named this dispatch count.
	const periodic = ` AND argument NOT LIKE '%job_runs%' AND argument NOT LIKE '% jobs %' AND argument NOT LIKE '%revo%' AND argument NOT LIKE 'SELECT id FROM dispatches%'`
	statements := func(id, like string) int {
		return b.Count("mysql.general_log WHERE command_type = 'Query' AND argument LIKE ? AND argument NOT LIKE '%general_log%'"+periodic+" AND thread_id NOT IN "+relays+
			" AND thread_id IN (SELECT thread_id FROM mysql.general_log WHERE argument LIKE ?)", like, "%"+id+"%")
	}
	record := func(on string) { b.exec("SET GLOBAL general_log = '" + on + "'") }
	for _, instances := range [][]*Instance{both[:1], both} {
		id := MakeDispatch(t, one)
		testkit.Eventually(t, "the dispatch's events are sent", func() bool { return b.Count("events WHERE next_at IS NOT NULL") == 0 })
		b.exec("TRUNCATE mysql.general_log")
		record("ON")
		answers := race(instances, id, drivers)
		// Thirty more, once every instance knows the winner.
		late := race(instances, id, drivers)
		record("OFF")
		oneWinner(t, b, id, drivers, answers)
		replays := 0
		for _, a := range late {
			if a.Won() {
				replays++
			}
		}
		if replays != 1 {
			t.Fatalf("%d late taps got the claim, want 1", replays)
		}
		if n := statements(id, callOfClaim+"%"); n != 1 {
			t.Errorf("%d claims are written", n)
		}
		// The winner's retry reads the row, and so does the winner's request at an instance that does not know dispatch and driver.
		reads := statements(id, "%FROM dispatches d JOIN drivers%")
		if reads < 1 || reads > 2 {
			t.Errorf("%d looks at the row for one winner", reads)
		}
		if n := statements(id, "%"); n != reads+1 {
			t.Errorf("%d statements for one winner and 59 losers:\n%s", n, b.logged())
		}
		decide, others := commands(t, c, id)
		// The winner's lock, marker and retry; on the other instance, the requests before it knows the winner.
		if decide < 3 || decide > 3+15*(len(instances)-1) {
			t.Errorf("%d commands that decide or mark over %d instances", decide, len(instances))
		}
		t.Logf("over %d instances: %d statements, %d Redis commands that decide or mark, %d others for 60 taps", len(instances), reads+1, decide, others)
	}
	costOfTheLedger(t, b, one, drivers, statements, record)
}

// costOfTheLedger: losers' requests execute no statement of their own; a thousand are recorded in a few batches.
func costOfTheLedger(t *testing.T, db *Database, i *Instance, drivers []Driver, statements func(id, like string) int, record func(string)) {
	t.Helper()
	const taps = 1000
	id := MakeDispatch(t, i)
	winner := Accept(i, id, drivers[0], 1)
	kept := func() int { return db.taps(id) }
	testkit.Eventually(t, "the tap is stored and its event expanded", func() bool { return kept() == 1 && db.Count("events WHERE next_at IS NOT NULL") == 0 })
	db.exec("TRUNCATE mysql.general_log")
	began := time.Now()
	record("ON")
	answers := Together(len(drivers)-1, func(k int) (a Response) {
		for range (taps + len(drivers) - 2) / (len(drivers) - 1) {
			a = Accept(i, id, drivers[k+1], 1)
		}
		return a
	})
	sent := (taps + len(drivers) - 2) / (len(drivers) - 1) * (len(drivers) - 1)
	testkit.Eventually(t, "every tap is kept", func() bool { return kept() == sent+1 })
	record("OFF")
	took := time.Since(began) // every recorded statement was sent in this time
	for _, a := range answers {
		if a.Code != "ALREADY_TAKEN" || !winner.Won() {
			t.Fatalf("%s, %s", winner, a)
		}
	}
	if n := statements(id, "%"); n != 0 {
		t.Errorf("%d statements for %d losers", n, sent)
	}
	inserts := db.Count("mysql.general_log WHERE command_type = 'Query' AND argument LIKE 'INSERT INTO taps %'")
	// At most one batch every 200 ms.
	if most := int(took/(200*time.Millisecond)) + 3; inserts == 0 || inserts > most {
		t.Errorf("%d taps in %s were written by %d statements, more than %d", sent, took, inserts, most)
	}
	looks := db.Count("mysql.general_log WHERE command_type = 'Query' AND argument LIKE '" + verifies + "'")
	if most := int(took/time.Second) + 2 + inserts; looks > most {
		t.Errorf("%d taps in %s were verified by %d statements, more than %d", sent, took, looks, most)
	}
	t.Logf("%d taps in %s: written by %d statements, %.1f per 1000 taps", sent, took, inserts, float64(inserts)*1000/float64(sent))
}

// logged is the server's general log.
func (db *Database) logged() (all string) {
	db.t.Helper()
	if err := db.DB.QueryRow("SELECT GROUP_CONCAT(thread_id, ' ', argument SEPARATOR '\n') FROM mysql.general_log").Scan(&all); err != nil {
		db.t.Error(err)
	}
	return all
}
