package systemtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// callOfClaim is how an instance has its database write a claim, in one packet.
const callOfClaim = "CALL firsttap_claim"

// lasting is the setting of locks that do not end while a test goes on: it ends them itself.
const lasting = "FIRSTTAP_ACCEPT_LOCK_TTL=10m"

// behindProxy starts an instance whose connections to the database can be broken.
func behindProxy(t *testing.T, url string, settings ...string) (*Instance, *servertest.Proxy) {
	t.Helper()
	_, rest, _ := strings.Cut(url, "@")
	addr, _, _ := strings.Cut(rest, "/")
	proxy := servertest.StartProxy(t, addr)
	return Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+proxy.URL(url))...), proxy
}

// stage is two instances over one database. The first one's connections to it can be broken.
type stage struct {
	one, two *Instance
	proxy    *servertest.Proxy // between instance one and the database
	db       *Database
	redis    *redis.Client
}

func newStage(t *testing.T, url string, settings ...string) *stage {
	t.Helper()
	redisURL := servertest.StartRedis(t).URL()
	settings = append([]string{"FIRSTTAP_REDIS_URL=" + redisURL, lasting}, settings...)
	s := &stage{db: OpenDatabase(t, url), redis: redisAt(t, redisURL)}
	s.one, s.proxy = behindProxy(t, url, settings...)
	s.two = Start(t, append(settings, "FIRSTTAP_DATABASE_URL="+url)...)
	return s
}

// keyOf is where the contract says that Redis has the dispatch's lock or marker.
func keyOf(id string) string { return "dispatch:lock:{" + id + "}" }

// offer is a dispatch of a test's own on the stage, in round 1, and three drivers who may accept it.
type offer struct {
	*stage
	t       *testing.T
	db      *Database
	drivers []Driver
	id, key string

	// Of a claim that the proxy holds back; see holdClaim.
	hold     *servertest.Hold
	answered chan Response
}

func (s *stage) offer(t *testing.T) *offer {
	t.Helper()
	o := &offer{stage: s, t: t, db: &Database{t, s.db.DB}, drivers: MakeDrivers(t, s.two, 3), id: MakeDispatch(t, s.two)}
	o.key = keyOf(o.id)
	return o
}

// holdClaim makes an offer that drivers[0] accepts at instance one. The driver has the lock, and the proxy holds the statement.
func (s *stage) holdClaim(t *testing.T, match string) *offer {
	t.Helper()
	o := s.offer(t)
	o.hold = s.proxy.Hold(match)
	t.Cleanup(o.hold.Release)
	o.answered = o.tapping(s.one, 0)
	testkit.Await(t, "the claim is being decided", o.hold.Reached())
	return o
}

// tap accepts the offer as driver k.
func (o *offer) tap(i *Instance, k int) Response { return Accept(i, o.id, o.drivers[k], 1) }

// tapping is tap in the background.
func (o *offer) tapping(i *Instance, k int) chan Response {
	answered := make(chan Response, 1)
	go func() { answered <- o.tap(i, k) }()
	return answered
}

// mustBeWon checks that the response to driver k is SUCCESS and that the database has the claim.
func (o *offer) mustBeWon(k int, a Response) {
	o.t.Helper()
	if !a.Won() {
		o.t.Fatalf("driver %d should win and got %s", k, a)
	}
	o.db.mustBeWonBy(o.id, 1, o.drivers[k].ID, a.Claim.ID)
}

// mustBeTaken checks that driver k is refused: for good, or only while another's claim is being decided.
func (o *offer) mustBeTaken(i *Instance, k int, final bool) {
	o.t.Helper()
	if a := o.tap(i, k); a.Code != "ALREADY_TAKEN" || *a.Final != final {
		o.t.Fatalf("driver %d should be refused, final: %t, and got %s", k, final, a)
	}
}

// loseLock ends the lock as its expiry or a failover would.
func (o *offer) loseLock() {
	o.t.Helper()
	if n, err := o.redis.Del(o.t.Context(), o.key).Result(); n != 1 || err != nil {
		o.t.Fatalf("%d locks to lose, %v", n, err)
	}
}

// keyMustBe checks what Redis has for the dispatch, "" for nothing.
func (o *offer) keyMustBe(want string) {
	o.t.Helper()
	got, err := o.redis.Get(o.t.Context(), o.key).Result()
	if got != want || err != nil && !errors.Is(err, redis.Nil) {
		o.t.Errorf("the key in Redis says %q, want %q; %v", got, want, err)
	}
}
