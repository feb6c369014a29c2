package handler

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/repositorytest"
)

// door is a world with the usual limits on failed sign-ins. Its clock stands still, so that no allowance is refilled. It counts
// statements by their kind.
type door struct {
	*world
	mu     sync.Mutex
	sent   map[string]int
	count  map[string]int // sign-ins by door and result
	began  time.Time
	before func(database.Statement) // is called before each statement, nil for nothing
}

func newDoor(t *testing.T) *door {
	d := &door{sent: map[string]int{}, count: map[string]int{}, began: time.Now()}
	now := time.Now()
	d.world = newWorld(t, func(a *API) {
		a.SignIns = auth.NewSignIns(auth.SignInOptions{
			Limits: auth.DefaultSignInLimits(), Store: storeOf(a).Keys, Counter: d,
			Now: func() time.Time { return now }, Log: a.Log,
		})
	})
	d.observe(func(c context.Context, s database.Statement) (context.Context, func(error)) {
		d.mu.Lock()
		d.sent[kindOf(s)]++
		before := d.before
		d.mu.Unlock()
		if before != nil {
			before(s)
		}
		return c, func(error) {}
	})
	return d
}

// CountSignIn implements auth.SignInCounter.
func (d *door) CountSignIn(at auth.Method, r auth.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count[fmt.Sprint(at, " ", r)]++
}

// hashes is the kind of a statement that looks up a key nobody has shown yet.
const hashes = "hashes"

// kindOf is the pool of a statement, or hashes.
func kindOf(s database.Statement) string {
	if strings.Contains(s.Query, "SELECT id, hash") {
		return hashes
	}
	return s.Pool
}

// statements returns how many there were of the kind, and starts again.
func (d *door) statements(kind string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.sent[kind]
	delete(d.sent, kind)
	return n
}

func (d *door) counted(what string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[what]
}

// from sends a request from that address.
func (d *door) from(ip, method, path, token, body string, headers ...string) reply {
	req := request(d.t.Context(), method, path, token, body, headers...)
	req.RemoteAddr = ip
	return d.serve(req, body)
}

// stranger returns a key that is well-formed and unknown.
func stranger(n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "stranger %d", n))
	return "ftk_" + cookieText.EncodeToString(sum[:])
}

// TestAThousandFailedSignIns from one address: a few are looked up, the others refused without a statement. Valid keys from the
// same address are not affected, also those that this instance has not seen before.
func TestAThousandFailedSignIns(t *testing.T) {
	w := newDoor(t)
	w.putNamedKey("key_known", dispatch.Viewer, "known")
	w.call("GET", "/v1/admin/board", "known", "").want(200)
	w.statements("serve")
	w.statements(hashes)
	var refused, limited, fine int
	for i := range 1000 {
		r := w.call("GET", "/v1/admin/board", stranger(i), "")
		if i%2 == 0 {
			r = w.call("POST", "/v1/session", "", `{"key":"`+stranger(-i-1)+`"}`)
		}
		switch {
		case r.status == 401 && r.code() == "UNAUTHENTICATED":
			refused++
		case r.status == 429 && r.code() == "RATE_LIMITED" && r.header.Get("Retry-After") != "":
			limited++
		default:
			t.Fatalf("%d %s", r.status, r.raw)
		}
		if i%100 == 99 {
			if r := w.call("GET", "/v1/session", "known", ""); r.status == 200 {
				fine++
			}
		}
	}
	// One statement for each that is looked up, and one a second for all others.
	looks := 20 + 1 + int(time.Since(w.began)/time.Second)
	if n := w.statements(hashes); n > looks {
		t.Errorf("%d statements, want at most %d", n, looks)
	}
	if n := w.statements("serve"); n != fine || fine != 10 {
		t.Errorf("%d statements of readers for %d requests with a key", n, fine)
	}
	if refused > 20 || limited < 980 {
		t.Errorf("%d refused, %d limited", refused, limited)
	}
	if n := w.counted("key failed") + w.counted("session failed") + w.counted("key limited") + w.counted("session limited"); n != 1500 {
		t.Errorf("%v", w.count) // every second of them twice
	}

	w.putNamedKey("key_elsewhere", dispatch.Viewer, "made elsewhere")
	testkit.Eventually(w.t, "a key that was made elsewhere is let in", func() bool {
		r := w.call("GET", "/v1/admin/board", "made elsewhere", "")
		if r.status == 401 {
			t.Errorf("it is said to be none: %s", r.raw)
		}
		return r.status == 200
	})
	w.from("203.0.113.7:1", "POST", "/v1/session", "", `{"key":"`+stranger(1)+`"}`).want(401)
	r := w.call("GET", "/v1/admin/board", stranger(0), "", "X-Forwarded-For", "203.0.113.8", "Forwarded", "for=203.0.113.8", "X-Real-Ip", "203.0.113.8")
	w.refused("a client that names another address", r, 429, "RATE_LIMITED")
}

// TestARevokedKeyAgain costs readers one statement, and its failures count as those of an unknown key do.
func TestARevokedKeyAgain(t *testing.T) {
	w := newDoor(t)
	w.statements("serve") // those of the start
	for range 10 {
		w.refused("unknown", w.call("GET", "/v1/admin/board", stranger(1), ""), 401, "UNAUTHENTICATED")
	}
	if n := w.statements("serve"); n != 0 {
		t.Errorf("%d statements of readers for an unknown key", n)
	}
	w.putNamedKey("key_revoked", dispatch.Viewer, "revoked")
	w.call("GET", "/v1/admin/board", "revoked", "").want(200)
	w.call("DELETE", "/v1/admin/api-keys/key_revoked", key, "").want(204)
	w.statements("serve")
	for range 9 {
		w.refused("revoked", w.call("GET", "/v1/admin/board", "revoked", ""), 401, "UNAUTHENTICATED")
	}
	if n := w.statements("serve"); n != 1 {
		t.Errorf("%d statements of readers for a key that was revoked", n)
	}
	w.refused("one failure too many", w.call("GET", "/v1/admin/board", "revoked", ""), 401, "UNAUTHENTICATED")
	w.refused("one failure too many", w.call("GET", "/v1/admin/board", "revoked", ""), 429, "RATE_LIMITED")
}

// TestUnauthenticatedFromManyAddresses: all failed sign-ins together are limited, and good keys are accepted.
func TestUnauthenticatedFromManyAddresses(t *testing.T) {
	w := newDoor(t)
	refused := 0
	for i := range 600 {
		// Of an IPv6 network each host has as many addresses as it likes.
		ip := fmt.Sprintf("[2001:db8:0:%x::%x]:1", i/30, i)
		if r := w.from(ip, "GET", "/v1/admin/board", stranger(i), ""); r.status == 401 {
			refused++
		} else if r.status != 429 {
			t.Fatalf("%d %s", r.status, r.raw)
		}
	}
	if refused != 200 {
		t.Errorf("%d were looked at", refused)
	}
	if n := w.statements(hashes); n > 200+1+int(time.Since(w.began)/time.Second) {
		t.Errorf("%d statements", n)
	}
	w.from("[2001:db8::1]:1", "POST", "/v1/session", "", `{"key":"`+key+`"}`).want(200)
}

// TestStrangersWait for each other, and do not delay anyone else: while the database does not answer about keys, known keys and all
// drivers are served.
func TestStrangersWait(t *testing.T) {
	w := newDoor(t)
	driver, release := w.drivers(1)[0], make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	defer free()
	reached := make(chan struct{}, 100)
	w.mu.Lock()
	w.before = func(s database.Statement) {
		if kindOf(s) == hashes {
			reached <- struct{}{}
			<-release
		}
	}
	w.mu.Unlock()
	var all sync.WaitGroup
	for i := range 15 {
		all.Go(func() {
			if r := w.from("203.0.113.7:1", "GET", "/v1/admin/board", stranger(i), ""); r.status != 401 && r.status != 503 {
				t.Errorf("%d %s", r.status, r.raw)
			}
		})
	}
	testkit.Await(t, "the keys are looked up on their own connections", reached)
	for range 5 {
		w.call("GET", "/v1/admin/board", key, "").want(200)
		w.call("GET", "/v1/me", driver.token, "").want(200)
	}
	free()
	all.Wait()
	if n := w.statements(hashes); n > 15 {
		t.Errorf("%d looks", n)
	}
}

// TestTokensThatProveNothing are refused as such up to a limit. Valid tokens are not affected, and expired ones are always refused
// as expired.
func TestTokensThatProveNothing(t *testing.T) {
	w := newDoor(t)
	old := auth.NewTokens(auth.TokenOptions{
		Revocations: w.revocations, Secret: []byte("secret"), Now: func() time.Time { return time.Now().Add(-40 * 24 * time.Hour) },
	})
	drivers := w.drivers(2)
	over, _, err := old.Issue(dispatch.DriverID(drivers[0].id), 0)
	noError(t, err)
	forged, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{Subject: drivers[0].id}).SignedString([]byte("guess"))
	noError(t, err)
	for _, pool := range []string{"serve", "decide", hashes} {
		w.statements(pool)
	}
	for i := range 1000 {
		token, want := forged+fmt.Sprint(i), 401
		if i%3 == 0 {
			token = over
		} else if w.counted("token failed") >= 200 {
			want = 429
		}
		if r := w.call("POST", "/v1/dispatches/dsp_x/accept", token, ""); r.status != want || want == 429 && r.header.Get("Retry-After") == "" {
			t.Fatalf("%d: %d %s, want %d", i, r.status, r.raw, want)
		}
	}
	for _, pool := range []string{"serve", "decide", hashes} {
		if n := w.statements(pool); n != 0 {
			t.Errorf("%d statements of %s", n, pool)
		}
	}
	w.call("GET", "/v1/me", drivers[1].token, "").want(200)
	w.call("GET", "/v1/admin/board", stranger(1), "").want(401)
	if failed, limited := w.counted("token failed"), w.counted("token limited"); failed != 200 || failed+limited != 666 {
		t.Errorf("%d failed, %d limited", failed, limited)
	}
}

// TestSignInsAreAudited: with the address, in one entry a minute for each key; other requests are not audited.
func TestSignInsAreAudited(t *testing.T) {
	w := newDoor(t)
	w.putKey(dispatch.Viewer, "viewer")
	for i := range 5 {
		w.from(fmt.Sprintf("203.0.113.%d:1", i), "POST", "/v1/session", "", `{"key":"viewer"}`, "X-Request-Id", "req-1").want(200)
	}
	w.call("GET", "/v1/session", "viewer", "")
	w.call("DELETE", "/v1/session", "", "")
	entry := w.call("GET", "/v1/admin/audit?actor=key_viewer", key, "").item()
	wantMembers(t, "the entry", entry, "action", "session.create", "target", "key_viewer", "request_id", "req-1",
		"detail.address", "203.0.113.0", "detail.times", 5.0, "detail.last.address", "203.0.113.4")
	if n := w.counted("session ok"); n != 5 {
		t.Errorf("%d are counted", n)
	}
}

// TestASignInThatIsNotAudited does not happen.
func TestASignInThatIsNotAudited(t *testing.T) {
	p := newPlace(t, repositorytest.URL(t, "sqlite"))
	w := newWorldOn(t, p.url)
	p.exec("CREATE TRIGGER broken BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END")
	w.refused("broken", w.call("POST", "/v1/session", "", `{"key":"`+key+`"}`), 503, "UNAVAILABLE").wantHeader("Set-Cookie", "")
}

// TestAddresses are the connection's, and of IPv6 a network's.
func TestAddresses(t *testing.T) {
	w := newWorld(t)
	var got []string
	e := w.api.(*echo.Echo)
	for _, remote := range []string{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", "[2001:db8:1:2:3::4]:1", "[fe80::1%eth0]:1", "@", ""} {
		c := e.NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader("")), httptest.NewRecorder())
		c.Request().RemoteAddr = remote
		got = append(got, clientNetwork(c))
	}
	if want := []string{"192.0.2.1", "192.0.2.1", "2001:db8:1:2::/64", "fe80::/64", "none", "none"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
