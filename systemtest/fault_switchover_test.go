package systemtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/notify/fcmtest"
	"firsttap/servertest"
	"firsttap/testkit"
)

const (
	// settled is how long a call may fail after a move, on a busy machine.
	settled = 5 * time.Minute
	// effect is how long a call waits for its effect before it is repeated.
	effect = 20 * time.Second
)

// The database moves to another server. The old one stays up, read-only, and its connections stay open. No instance may
// answer from it.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jobLock string
		back    bool // the first server replicates the second from then on
	}{
		"the old server stays as it was": {"table", false},
		"the old server follows the new": {"named", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.back {
				testkit.OnlyInAll(t)
			}
			s := newSwitchover(t, "FIRSTTAP_JOB_LOCK="+c.jobLock)
			stop := s.call()
			s.untilWell(t, before, "before anything happens", settled)
			s.phase.Store(during)
			s.servers.Demote()
			testkit.Eventually(t, "/readyz tells that the server takes no writes", func() bool { return s.one.readyz().status == 503 })
			testkit.Eventually(t, "firsttap_database_up tells that the server takes no writes", func() bool {
				return Metric(t, s.ops, "firsttap_database_up") == 0
			})
			s.servers.Follow()
			s.servers.Promote()
			s.toOne.Redirect(s.servers.Replica.Addr())
			s.toTwo.Redirect(s.servers.Replica.Addr())
			s.toTwo.CutAll()
			s.phase.Store(after)
			if c.back {
				s.servers.Reverse()
			}
			s.makeChanges(t)
			s.untilWell(t, after, "on the new server", settled)
			stop()
			for _, c := range s.calls {
				t.Logf("%s: before %v, while read-only %v, on the new server %v", c.name, c.said[before], c.said[during], c.said[after])
				if c.stale > 0 {
					t.Errorf("%s: %d answers were stale", c.name, c.stale)
				}
			}
		})
	}
}

const (
	before = iota
	during // the first server is read-only, and new connections lead to it
	after  // new connections lead to the second
)

// switchover is two instances on a database that moves. The first instance's connections are never cut.
type switchover struct {
	servers      *servertest.Replication
	toOne, toTwo *servertest.Proxy
	one, two     *Instance
	ops          string
	fcm          *fcmtest.Server

	// Both were won by winner before the move; afterwards one is another driver's, and one is open.
	won, returned                        string
	winner, other, idle, looker, claimer Driver
	courier                              Driver // has a phone, in a region of its own

	phase atomic.Int32
	news  atomic.Pointer[changes]
	calls []*call
}

// changes are the commits of the second instance on the new server.
type changes struct {
	open, free string // dispatches; claimer may take the second
	key        string // an administrator's
}

func newSwitchover(t *testing.T, settings ...string) *switchover {
	t.Helper()
	s := &switchover{servers: servertest.StartReplication(t, servertest.MariaDB), ops: testkit.FreeAddress(t), fcm: StartFCM(t)}
	url := s.servers.URL(t)
	s.toOne, s.toTwo = servertest.StartProxy(t, s.servers.Primary.Addr()), servertest.StartProxy(t, s.servers.Primary.Addr())
	settings = append(settings, ownRedis(t))
	s.one = Start(t, append(PushSettings(s.toOne.URL(url), s.fcm, "one", settings...), "FIRSTTAP_OPS_ADDR="+s.ops)...)
	s.two = Start(t, PushSettings(s.toTwo.URL(url), s.fcm, "two", settings...)...)
	drivers := MakeDrivers(t, s.one, 5)
	s.winner, s.other, s.idle, s.looker, s.claimer = drivers[0], drivers[1], drivers[2], drivers[3], drivers[4]
	s.courier = MakeDriversWithPhones(t, s.one, "daegu", 1)[0]
	s.won, s.returned = MakeDispatch(t, s.one), MakeDispatch(t, s.one)
	for _, id := range []string{s.won, s.returned} {
		mustWin(t, s.one, id, s.winner, 1)
	}
	s.calls = s.errands()
	return s
}

// makeChanges makes the second instance change, on the new server, what the first one's calls read.
func (s *switchover) makeChanges(t *testing.T) {
	t.Helper()
	for _, id := range []string{s.won, s.returned} {
		url := s.two.URL + "/v1/admin/dispatches/" + id
		testkit.Eventually(t, "the backoffice takes the dispatch back", func() bool {
			seen := send("GET", url, AdminKey, "")
			return sendWith("POST", url+"/unassign", AdminKey, "{}", "If-Match", seen.header.Get("ETag")).status == 200
		})
	}
	testkit.Eventually(t, "another driver takes it", func() bool { return Accept(s.two, s.won, s.other, 2).Won() })
	n := changes{open: MakeDispatch(t, s.two), free: MakeDispatch(t, s.two)}
	s.two.must(200, "PUT", "/v1/me/duty", s.idle.Token, `{"on_duty":false}`)
	n.key = textOf(s.two.must(201, "POST", "/v1/admin/api-keys", AdminKey, `{"name":"new","role":"viewer"}`).body, "key")
	s.news.Store(&n)
}

// call is a request that the first instance gets again and again.
type call struct {
	name string
	// ask sends the request once. n is nil until there are changes.
	ask func(n *changes) (said string, v verdict)
	// enough is how many good responses in a row end a phase.
	enough int

	mu    sync.Mutex
	said  [after + 1]map[string]int
	stale int
	well  int // in a row, in the current phase and with the current changes
	news  *changes
	phase int32
}

type verdict int

const (
	refused verdict = iota // no result, for now
	well
	stale // the response was true before the move
)

func judge(isWell, isStale bool) verdict {
	switch {
	case isStale:
		return stale
	case isWell:
		return well
	}
	return refused
}

func (s *switchover) errands() []*call {
	get := func(path, token string) Response { return send("GET", s.one.URL+path, token, "") }
	short := func(a Response) string {
		return strings.TrimSpace(fmt.Sprint(a.status, " ", a.Code, a.Result, a.Outcome))
	}
	// has reads a page that must contain the new row.
	has := func(token func(n *changes) string, path string, what func(n *changes) string) func(*changes) (string, verdict) {
		return func(n *changes) (string, verdict) {
			a := get(path, token(n))
			return short(a), judge(a.status == 200, a.status == 200 && n != nil && !strings.Contains(a.body, what(n)))
		}
	}
	admin := func(*changes) string { return AdminKey }
	open := func(n *changes) string { return n.open }
	again := func(id string) func(n *changes) (string, verdict) {
		return func(n *changes) (string, verdict) {
			a := Accept(s.one, id, s.winner, 1)
			if n == nil {
				return short(a), judge(a.Won(), a.status == 404)
			}
			return short(a), judge(a.status == 409, a.Won() || a.status == 404)
		}
	}
	return []*call{
		{name: "the former winner's tap on a dispatch that another has", ask: again(s.won)},
		{name: "the former winner's tap on a dispatch that is open again", ask: again(s.returned)},
		{name: "a tap on a new dispatch", ask: func(n *changes) (string, verdict) {
			if n == nil {
				a := Accept(s.one, s.won, s.claimer, 1)
				return short(a), judge(a.Code == "ALREADY_TAKEN", a.status == 404)
			}
			a := Accept(s.one, n.free, s.claimer, 1)
			return short(a), judge(a.Won(), a.status == 404 || a.status == 409)
		}},
		{name: "the former winner's receipt", ask: func(n *changes) (string, verdict) {
			a := get("/v1/me/dispatches/"+s.won+"/claim", s.winner.Token)
			return short(a), judge(a.status == 200, n != nil && a.Outcome == "WON")
		}},
		{name: "GET /v1/me", ask: has(func(*changes) string { return s.idle.Token }, "/v1/me", func(*changes) string { return `"on_duty":false` })},
		{name: "GET /v1/me/offers", ask: has(func(*changes) string { return s.looker.Token }, "/v1/me/offers", open)},
		{name: "the list of dispatches", ask: has(admin, "/v1/admin/dispatches?region=seoul&limit=5", open)},
		{name: "the list of drivers", ask: has(admin, "/v1/admin/drivers?limit=100", func(*changes) string { return `"on_duty":false` })},
		{name: "a new dispatch by its id", ask: func(n *changes) (string, verdict) {
			id := s.won
			if n != nil {
				id = n.open
			}
			a := get("/v1/admin/dispatches/"+id, AdminKey)
			return short(a), judge(a.status == 200, a.status == 404)
		}},
		{name: "a new key", ask: func(n *changes) (string, verdict) {
			if n == nil {
				return "", well
			}
			a := get("/v1/admin/board", n.key)
			return short(a), judge(a.status == 200, a.status == 401)
		}},
		{name: "a dispatch is made and pushed", ask: func(*changes) (string, verdict) { return s.push() }, enough: 3},
		{name: "a job is run", ask: func(*changes) (string, verdict) { return s.runJob() }, enough: 2},
		{name: "/readyz", ask: func(*changes) (string, verdict) {
			a := get("/readyz", "")
			return short(a), judge(a.status == 200, false)
		}},
	}
}

// push makes a dispatch at the first instance, and waits until a phone shows it.
func (s *switchover) push() (string, verdict) {
	made := createDispatch(s.one, DispatchOptions{Region: "daegu"})
	if made.status != 201 {
		return "no dispatch", refused
	}
	if !testkit.Poll(effect, func() bool { return len(shownTypes(s.fcm, pushToken(s.courier), made.ID)) > 0 }) {
		return "201, no push", refused
	}
	return "201, pushed", well
}

// runJob starts a job, on any instance, and waits until the first instance reports its end.
func (s *switchover) runJob() (string, verdict) {
	a := send("POST", s.one.URL+"/v1/admin/jobs/expire-offers/run", AdminKey, "")
	var asked jobRun
	if err := json.Unmarshal([]byte(a.body), &asked); err != nil || a.status != 202 {
		return fmt.Sprint(a.status, " ", a.Code), refused
	}
	status := "is not known"
	testkit.Poll(effect, func() bool {
		var list struct{ Items []jobRun }
		a := send("GET", s.one.URL+"/v1/admin/jobs/expire-offers/runs?limit=100", AdminKey, "")
		if json.Unmarshal([]byte(a.body), &list) != nil {
			return false
		}
		if k := slices.IndexFunc(list.Items, func(r jobRun) bool { return r.ScheduledAt.Equal(asked.ScheduledAt) }); k >= 0 {
			status = list.Items[k].Status
		}
		return status == "SUCCEEDED" || status == "FAILED"
	})
	return "202, " + status, judge(status == "SUCCEEDED", false)
}

// call repeats all calls until stop is called.
func (s *switchover) call() (stop func()) {
	end := make(chan struct{})
	var calling sync.WaitGroup
	for _, c := range s.calls {
		calling.Go(func() {
			pace := time.NewTicker(100 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-end:
					return
				case <-pace.C:
				}
				phase, n := s.phase.Load(), s.news.Load()
				said, v := c.ask(n)
				c.note(phase, n, said, v)
			}
		})
	}
	return sync.OnceFunc(func() { close(end); calling.Wait() })
}

func (c *call) note(phase int32, n *changes, said string, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said[phase] == nil {
		c.said[phase] = map[string]int{}
	}
	if v == stale {
		c.stale++
		said += " STALE"
	}
	c.said[phase][said]++
	if phase != c.phase {
		c.well = 0
	}
	c.phase, c.news = phase, n
	if v == well {
		c.well++
	} else {
		c.well = 0
	}
}

// untilWell waits until each call succeeds several times in a row, with the changes where there are any.
func (s *switchover) untilWell(t *testing.T, phase int32, when string, patience time.Duration) {
	t.Helper()
	bad := func(c *call) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.phase != phase || c.news != s.news.Load() || c.well < cmp.Or(c.enough, 10)
	}
	if !testkit.Poll(patience, func() bool { return !slices.ContainsFunc(s.calls, bad) }) {
		for _, c := range s.calls {
			if bad(c) {
				t.Errorf("%s: not answered well %s", c.name, when)
			}
		}
	}
}
