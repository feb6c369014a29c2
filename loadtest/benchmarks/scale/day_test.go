package scale

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/fcmtest"
	"firsttap/systemtest"
)

// The model of a day: a country of regions, in each of which the same number of drivers are on duty. A share of the regions lives here, on
// two instances, so that the machine can carry it; the drivers of the other regions are in the database, too.
const (
	perRegion   = 30 // drivers on duty, each with a phone
	livePerMin  = 240
	boardEvery  = time.Second
	pendingPath = "/v1/admin/dispatches?status=PENDING"
	seenShare   = .8  // of the pushes
	tapShare    = .6  // of the drivers who see an offer
	declined    = .15 // of them
	noShow      = .03 // of the winners: the backoffice takes the job from them, and it is offered again
	canceled    = .02 // of the dispatches, some seconds after they are made
	pushMedian  = 300 * time.Millisecond
	lookMedian  = 2500 * time.Millisecond
	startMedian = 8 * time.Second // hours in life
	workMedian  = 8 * time.Second
)

// about returns a time of the log-normal distribution with that median, as people and networks have it.
func about(median time.Duration, sigma float64) time.Duration {
	return time.Duration(float64(median) * math.Exp(sigma*rand.NormFloat64()))
}

func chance(p float64) bool { return rand.Float64() < p }

func number(b *testing.B, name, usual string) float64 {
	b.Helper()
	n, err := strconv.ParseFloat(cmp.Or(os.Getenv(name), usual), 64)
	if err != nil || n <= 0 {
		b.Fatalf("%s is no number above 0", name)
	}
	return n
}

// A minute of the day of FIRSTTAP_DRIVERS drivers and FIRSTTAP_PER_MINUTE dispatches a minute, as long as FIRSTTAP_MINUTES says: what was
// true of it, what a dispatch cost beside what the cost model of docs/scaling.md says, and what the whole country would take.
func BenchmarkDay(b *testing.B) {
	drivers, perMinute, minutes := number(b, "FIRSTTAP_DRIVERS", "20000"), number(b, "FIRSTTAP_PER_MINUTE", "200"), number(b, "FIRSTTAP_MINUTES", "1")
	share := min(1, livePerMin/perMinute)
	db := servertest.StartMariaDB(b)
	d := newDay(b, db.URL(b), int(drivers), perMinute*share)
	b.Logf("%.0f drivers, %.0f dispatches a minute; here live %d drivers in %d regions and %.0f dispatches a minute, %.2g of the country, for %.3g min",
		drivers, perMinute, len(d.drivers), len(d.regions), perMinute*share, share, minutes)
	for _, reader := range d.drivers {
		d.measurePrices(reader)
		break
	}
	before := d.meter()
	began := time.Now()
	d.run(time.Duration(minutes * float64(time.Minute)))
	d.settle()
	spent := d.meter().minus(before)
	spent.seconds = time.Since(began).Seconds()
	d.report(spent)
	d.extrapolate(spent, perMinute)
	b.ReportMetric(0, "ns/op")
}

// day is a share of the country.
type day struct {
	b         *testing.B
	db        *systemtest.Database
	instances []*systemtest.Instance
	redis     *redis.Client
	regions   []string
	drivers   map[string]systemtest.Driver // by identifier
	rate      float64                      // dispatches a second
	people    sync.WaitGroup               // what drivers and the backoffice do later
	made      sync.Map                     // when a dispatch was asked for, by identifier

	mu     sync.Mutex
	took   map[string][]time.Duration // by what was asked, and "push"
	counts map[string]int
	wins   map[string]string // the driver by round
	oldest time.Duration     // that a push was due
	// unstored is the most taps that were answered and not in the ledger.
	unstored int
	idle     cost // in a second
	prices   map[string]cost
}

func newDay(b *testing.B, url string, drivers int, perMinute float64) *day {
	d := &day{
		b: b, db: systemtest.OpenDatabase(b, url), rate: perMinute / 60, drivers: map[string]systemtest.Driver{},
		took: map[string][]time.Duration{}, counts: map[string]int{}, wins: map[string]string{},
	}
	fcm := systemtest.StartFCM(b)
	fcm.Set(func(k *fcmtest.Knobs) { k.Latency, k.Jitter = 40*time.Millisecond, 40*time.Millisecond })
	address := servertest.RedisURL(b)
	options, err := redis.ParseURL(address)
	if err != nil {
		b.Fatal(err)
	}
	d.redis = redis.NewClient(options)
	b.Cleanup(func() { d.redis.Close() })
	for range 2 {
		d.instances = append(d.instances, systemtest.Start(b, systemtest.PushSettings(url, fcm, "demo", "FIRSTTAP_REDIS_URL="+address)...))
	}
	// Enough regions that a driver is seldom asked twice at a time: one for each 5 dispatches of a minute.
	for n := range max(4, int(perMinute/5)) {
		region := fmt.Sprintf("live %d", n)
		d.regions = append(d.regions, region)
		for _, v := range systemtest.MakeDriversWithPhones(b, d.instances[0], region, perRegion) {
			d.drivers[v.ID] = v
		}
	}
	if others := drivers - len(d.drivers); others > 0 {
		fill(b, url, crowd{name: "fill", drivers: others, region: "CONCAT('region ', n MOD 100)", phones: 10})
	}
	fcm.OnSend(d.pushed)
	return d
}

func (d *day) any() *systemtest.Instance { return d.instances[rand.N(len(d.instances))] }

// ask sends a request and notes how long it takes.
func (d *day) ask(what, method, path, token, body string) systemtest.Response {
	began := time.Now()
	r := d.any().Request(method, path, token, body)
	d.note(what, time.Since(began))
	return r
}

func (d *day) note(what string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took[what] = append(d.took[what], took)
}

func (d *day) count(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[what]++
}

// later lets a person do something after that time.
func (d *day) later(after time.Duration, do func()) {
	d.people.Go(func() {
		wait := time.NewTimer(after)
		defer wait.Stop()
		select {
		case <-wait.C:
			do()
		case <-d.b.Context().Done():
		}
	})
}

// run lets dispatches arrive as a Poisson process for that time, and the backoffice look at the board.
func (d *day) run(length time.Duration) {
	end := time.NewTimer(length)
	defer end.Stop()
	looks := time.NewTicker(boardEvery)
	defer looks.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-end.C:
			return
		case <-next.C:
			d.people.Go(d.order)
			next.Reset(time.Duration(rand.ExpFloat64() / d.rate * float64(time.Second)))
		case <-looks.C:
			d.people.Go(func() {
				d.ask("board", "GET", "/v1/admin/board", systemtest.AdminKey, "")
				d.ask("list", "GET", pendingPath, systemtest.AdminKey, "")
				d.sampleLag()
			})
		}
	}
}

// order makes a dispatch.
func (d *day) order() {
	starts := time.Now().Add(time.Duration(1+rand.N(24*30)) * time.Hour).UTC()
	body := fmt.Sprintf(`{"region":%q,"vehicle_class":"45m","site_address":"%d Teheran-ro, Gangnam-gu, Seoul","work_starts_at":%q,"work_ends_at":%q,`+
		`"fee":{"amount":350000,"currency":"KRW"}}`, d.regions[rand.N(len(d.regions))], rand.N(1000), starts.Format(time.RFC3339), starts.Add(time.Hour).Format(time.RFC3339))
	asked := time.Now()
	r := d.ask("create", "POST", "/v1/admin/dispatches", systemtest.AdminKey, body)
	if r.ID == "" {
		d.count("creations that failed")
		return
	}
	d.made.Store(r.ID, asked)
	d.count("made")
	if chance(canceled) {
		d.later(about(lookMedian, .7), func() { d.change("canceled", r.ID, "cancel", `{"reason_code":"CUSTOMER_CANCELED"}`) })
	}
}

// change has the backoffice change a dispatch as it is now.
func (d *day) change(what, id, action, body string) {
	path := "/v1/admin/dispatches/" + id
	now := d.any().Request("GET", path, systemtest.AdminKey, "")
	began := time.Now()
	if r := d.any().RequestIf(strconv.Itoa(now.Version), "POST", path+"/"+action, systemtest.AdminKey, body); r.Succeeded() {
		d.count(what)
		d.note("change", time.Since(began))
	}
}

// pushed is called by the push service with each message.
func (d *day) pushed(r fcmtest.Request) {
	d.count("pushes")
	id, kind := r.Data["dispatch_id"], r.Data["type"]
	round, _ := strconv.Atoi(r.Data["round"])
	if asked, ok := d.made.Load(id); ok && kind == "dispatch.opened" && round == 1 {
		d.note("push", r.At.Sub(asked.(time.Time)))
	}
	if (kind == "dispatch.opened" || kind == "dispatch.reopened") && chance(seenShare) {
		v := d.drivers[strings.TrimPrefix(r.Token, "token-")]
		d.later(about(pushMedian, .6)+about(lookMedian, .7), func() { d.look(id, round, v) })
	}
}

// look reads the driver's offers. Then the driver taps, declines, or does nothing.
func (d *day) look(id string, round int, v systemtest.Driver) {
	d.ask("offers", "GET", "/v1/me/offers", v.Token, "")
	switch p := rand.Float64(); {
	case p < tapShare:
		d.tap(id, round, v)
	case p < tapShare+declined:
		d.ask("decline", "POST", "/v1/dispatches/"+id+"/decline", v.Token, "")
	}
}

func (d *day) tap(id string, round int, v systemtest.Driver) {
	began := time.Now()
	r := systemtest.Accept(d.any(), id, v, round)
	took := time.Since(began)
	d.count("taps")
	if !r.Won() {
		d.note("loser", took)
		d.count(cmp.Or(r.Code, "no answer"))
		return
	}
	d.note("winner", took)
	d.count("won")
	d.mustBeFirst(fmt.Sprintf("round %d of %s", round, id), v.ID)
	if chance(noShow) {
		d.later(about(startMedian, .5), func() { d.change("no-shows", id, "unassign", `{"reason_code":"NO_SHOW"}`) })
		return
	}
	d.later(about(startMedian, .5), func() {
		if d.ask("start", "POST", "/v1/dispatches/"+id+"/start", v.Token, "").Succeeded() {
			d.count("started")
			d.later(about(workMedian, .5), func() {
				if d.ask("complete", "POST", "/v1/dispatches/"+id+"/complete", v.Token, "").Succeeded() {
					d.count("completed")
				}
			})
		}
	})
}

// mustBeFirst fails the benchmark if another driver has won that round.
func (d *day) mustBeFirst(round, winner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by := d.wins[round]; by != "" && by != winner {
		d.b.Errorf("%s was won by %s and by %s", round, by, winner)
	}
	d.wins[round] = winner
}

// settle waits until everybody has done what they wanted, and all pushes are sent.
func (d *day) settle() {
	d.people.Wait()
	testkit.Within(d.b, 2*testkit.Patience, "all is pushed", func() bool {
		return d.db.Count("events WHERE next_at IS NOT NULL AND next_at < UNIX_TIMESTAMP(NOW(6)) * 1000000") == 0 && d.db.Count("notifications WHERE state = 0") == 0
	})
	d.people.Wait()
	testkit.Within(d.b, testkit.Patience, "all taps are stored", func() bool {
		var n int
		if err := d.db.DB.QueryRow("SELECT COALESCE(SUM(count), 0) FROM taps").Scan(&n); err != nil {
			d.b.Fatal(err)
		}
		return n >= d.counts["taps"]-d.counts["no answer"]
	})
}
