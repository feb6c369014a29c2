package handler

import (
	"context"
	"database/sql"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/repositorytest"
	"firsttap/systemtest"
)

// place is instances of the API over one database, and a way of its own to that.
type place struct {
	t   testing.TB
	url string
	raw *sql.DB
}

func eachPlace(t *testing.T, test func(*testing.T, *place)) {
	t.Helper()
	placeOn(t, servertest.Databases(), test)
}

// eachServerPlace is eachPlace without SQLite.
func eachServerPlace(t *testing.T, test func(*testing.T, *place)) {
	t.Helper()
	placeOn(t, servertest.Servers(), test)
}

func placeOn(t *testing.T, kinds []string, test func(*testing.T, *place)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, kinds, func(t *testing.T, kind string) { test(t, newPlace(t, repositorytest.URL(t, kind))) })
}

func newPlace(t testing.TB, url string) *place {
	t.Helper()
	return &place{t: t, url: url, raw: systemtest.OpenDatabase(t, url).DB}
}

func (p *place) exec(query string, args ...any) {
	p.t.Helper()
	if _, err := p.raw.ExecContext(p.t.Context(), query, args...); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
}

func (p *place) count(from string) (n int) {
	p.t.Helper()
	noError(p.t, p.raw.QueryRowContext(p.t.Context(), "SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

// dies leaves the request as an instance leaves it that dies between the commit and the answer, at the end of its lease.
func (p *place) dies() {
	p.t.Helper()
	p.exec("UPDATE idempotency_keys SET answer = NULL, leased = 'lse_dead', lease_ends = 1")
}

func (w *world) post(path, body, name string) reply {
	return w.call("POST", path, key, body, "Idempotency-Key", name)
}

// same fails the test unless again equals the first answer.
func (w *world) same(what string, first, again reply) {
	w.t.Helper()
	again.want(first.status).wantHeader("Idempotent-Replayed", "true").wantBody(first.raw)
	for _, name := range []string{"Location", "Etag", "Content-Type"} {
		if again.header.Get(name) != first.header.Get(name) {
			w.t.Errorf("%s: %s is %q, was %q", what, name, again.header.Get(name), first.header.Get(name))
		}
	}
	if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("X-Request-Id") == first.header.Get("X-Request-Id") {
		w.t.Errorf("%s: %v, then %v", what, first.header, again.header)
	}
}

const driverBody = `{"name":"Kim","phone":"+821012345678","regions":["seoul"],"vehicle_class":"45m"}`

func TestReplay(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w, other := newWorldOn(t, p.url), newWorldOn(t, p.url)
		body := order(1, `"external_id":"ERP-1"`)
		first := w.post("/v1/admin/dispatches", body, "a b~!").want(201).wantHeader("Etag", `"1"`)
		first.hasHeader("Location")
		other.same("on another instance", first, other.post("/v1/admin/dispatches", body, "a b~!"))
		w.refused("another body", w.post("/v1/admin/dispatches", order(2), "a b~!"), 422, "IDEMPOTENCY_KEY_REUSED")
		w.refused("another path", w.post("/v1/admin/drivers", body, "a b~!"), 422, "IDEMPOTENCY_KEY_REUSED")
		refused := w.post("/v1/admin/dispatches", body, "a b~")
		w.refused("another key", refused, 409, "DUPLICATE_EXTERNAL_ID")
		w.same("what was refused", refused, w.post("/v1/admin/dispatches", body, "a b~"))
		w.putKey(dispatch.Dispatcher, "another-caller")
		again := w.call("POST", "/v1/admin/dispatches", "another-caller", order(3), "Idempotency-Key", "a b~!").want(201)
		if again.at("id") == first.at("id") {
			t.Errorf("another caller gets the same: %s", again.raw)
		}
		if n := p.count("dispatches"); n != 2 {
			t.Errorf("%d dispatches", n)
		}
		p.exec("UPDATE idempotency_keys SET expires_at = 1")
		w.refused("a day later", w.post("/v1/admin/dispatches", body, "a b~!"), 409, "DUPLICATE_EXTERNAL_ID")
	})
}

// TestTwentyAtOnce: of requests to two instances one is carried out; the others get its answer, or that it is under way.
func TestTwentyAtOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		instances := []*world{newWorldOn(t, p.url), newWorldOn(t, p.url)}
		body := order(1)
		var replies [20]reply
		testkit.Together(len(replies), func(i int) {
			replies[i] = instances[i%2].post("/v1/admin/dispatches", body, "one")
		})
		made := 0
		for _, r := range replies {
			switch {
			case r.status == 201 && r.header.Get("Idempotent-Replayed") == "":
				made++
			case r.status == 201:
			default:
				instances[0].refused("another", r, 409, "IDEMPOTENCY_KEY_IN_USE").wantHeader("Retry-After", "1")
			}
		}
		if n := p.count("dispatches"); made != 1 || n != 1 || p.count("events") != 1 {
			t.Errorf("%d answers, %d dispatches", made, n)
		}
	})
}

// TestAfterADeath: an instance dies between the commit and the answer. The repeated request creates nothing twice, and gets what
// the first one created.
func TestAfterADeath(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w, next := newWorldOn(t, p.url), newWorldOn(t, p.url)
		d := w.drivers(1)[0]
		for path, c := range map[string]struct {
			body, table string
			made        int
		}{
			"/v1/admin/dispatches":                   {order(1, `"external_id":"ERP-1"`), "dispatches", 1},
			"/v1/admin/drivers":                      {driverBody, "drivers", 1},
			"/v1/admin/drivers/bulk":                 {`{"drivers":[` + driverBody + `,` + driverBody + `],"issue_tokens":true}`, "drivers", 2},
			"/v1/admin/api-keys":                     {`{"name":"ci","role":"viewer"}`, "api_keys", 1},
			webhooks:                                 {endpoint(), "webhooks", 1},
			"/v1/admin/drivers/" + d.id + "/suspend": {`{}`, "drivers WHERE version > 1", 1},
			"/v1/admin/drivers/" + d.id + "/tokens":  {``, "audit WHERE action = 'driver.token'", 1},
		} {
			before := p.count(c.table)
			first := w.post(path, c.body, path)
			audited := p.count("audit")
			if first.status > 299 || p.count(c.table)-before != c.made {
				t.Fatalf("%s: %d %s", path, first.status, first.raw)
			}
			p.dies()
			again := next.post(path, c.body, path)
			if p.count(c.table)-before != c.made || p.count("audit") != audited {
				t.Errorf("%s was done twice", path)
			}
			again.want(first.status).wantHeader("Location", first.header.Get("Location")).wantHeader("Idempotent-Replayed", "")
			if !strings.Contains(path, "token") && !strings.Contains(path, "bulk") { // tokens differ
				again.wantBody(first.raw)
			}
			for i, v := range items(first) {
				if items(again)[i]["id"] != v["id"] {
					t.Errorf("%s: %v, then %v", path, v, items(again)[i])
				}
			}
			next.same(path, again, next.post(path, c.body, path))
		}
	})
}

// TestALostCommit: the reply to the COMMIT is lost. The service finds out that a dispatch is created. Of a driver it loses the answer too,
// and the next try finds the created row.
func TestALostCommit(t *testing.T) {
	p := newPlace(t, repositorytest.URL(t, "mariadb"))
	near := newWorldOn(t, p.url)
	u, err := url.Parse(p.url)
	noError(t, err)
	lost := func(path, body, into string) reply {
		t.Helper()
		proxy := servertest.StartProxy(t, u.Host)
		far := newWorldOn(t, proxy.URL(p.url))
		cut := proxy.CutReply("COMMIT", "INSERT INTO `"+into+"`")
		r := far.post(path, body, into)
		<-cut.Done()
		return r
	}
	body := order(1, `"external_id":"ERP-1"`)
	lost("/v1/admin/dispatches", body, "dispatches").want(201)
	near.post("/v1/admin/dispatches", body, "dispatches").want(201).wantHeader("Idempotent-Replayed", "true")
	if n := p.count("dispatches"); n != 1 || p.count("events") != 1 {
		t.Errorf("%d dispatches", n)
	}
	body = driverBody
	near.refused("an unknown result", lost("/v1/admin/drivers", body, "drivers"), 503, "UNAVAILABLE")
	before := p.count("drivers")
	near.post("/v1/admin/drivers", body, "drivers").want(201).wantHeader("Idempotent-Replayed", "")
	if n := p.count("drivers"); n != before {
		t.Errorf("%d drivers, %d before the second try", n, before)
	}
}

// TestAnswersThatAreNotKept: the answer to a request is not stored if the same request may get another answer later. The request is
// then carried out again.
func TestAnswersThatAreNotKept(t *testing.T) {
	p := newPlace(t, repositorytest.URL(t, "sqlite"))
	w := newWorldOn(t, p.url)
	w.putKey(dispatch.Viewer, "a-viewer")
	body := order(1)
	w.refused("an unknown key", w.call("POST", "/v1/admin/dispatches", "nobody", body, "Idempotency-Key", "k"), 401, "UNAUTHENTICATED")
	w.refused("a viewer", w.call("POST", "/v1/admin/dispatches", "a-viewer", body, "Idempotency-Key", "k"), 403, "FORBIDDEN")
	if n := p.count("idempotency_keys"); n != 0 {
		t.Errorf("%d kept", n)
	}
	p.exec("CREATE TRIGGER broken BEFORE INSERT ON dispatches BEGIN SELECT RAISE(ABORT, 'no'); END")
	for range 2 {
		w.refused("broken", w.post("/v1/admin/dispatches", body, "k"), 503, "UNAVAILABLE")
	}
	w.refused("another body", w.post("/v1/admin/dispatches", order(2), "k"), 422, "IDEMPOTENCY_KEY_REUSED")
	p.exec("DROP TRIGGER broken")
	w.post("/v1/admin/dispatches", body, "k").want(201).wantHeader("Idempotent-Replayed", "")
	for _, status := range []int{401, 403, 408, 412, 428, 429, 499, 500, 503} {
		if (&answer{Status: status}).final() {
			t.Errorf("%d is kept", status)
		}
	}
	rows := p.count("idempotency_keys")
	w.refused("nothing to cancel", w.post("/v1/admin/dispatches/dsp_unknown/cancel", `{"reason_code":"RAIN"}`, "k1"), 404, "DISPATCH_NOT_FOUND")
	w.refused("an unknown field", w.post("/v1/admin/dispatches", `{"x":1}`, "k2"), 422, "VALIDATION_FAILED")
	w.refused("no JSON", w.post("/v1/admin/dispatches", "{", "k3"), 400, "MALFORMED_REQUEST")
	if n := p.count("idempotency_keys"); n != rows {
		t.Errorf("%d refused requests are kept", n-rows)
	}
	w.post("/v1/admin/dispatches", order(4, `"external_id":"ERP-1"`), "k4").want(201)
	w.refused("a duplicate", w.post("/v1/admin/dispatches", order(4, `"external_id":"ERP-1"`), "k5"), 409, "DUPLICATE_EXTERNAL_ID")
	if n := p.count(fmt.Sprintf("idempotency_keys WHERE expires_at < %d", time.Now().Add(2*time.Hour).UnixMicro())); n != 1 {
		t.Errorf("%d answers are kept for an hour, want that of the duplicate", n)
	}
}

// TestAnAnswerThatCannotBeKept is given all the same, and nothing is made twice.
func TestAnAnswerThatCannotBeKept(t *testing.T) {
	p := newPlace(t, repositorytest.URL(t, "sqlite"))
	w := newWorldOn(t, p.url)
	p.exec("CREATE TRIGGER broken BEFORE UPDATE ON idempotency_keys BEGIN SELECT RAISE(ABORT, 'no'); END")
	body := order(1)
	first := w.post("/v1/admin/dispatches", body, "k")
	if first.want(201); !strings.Contains(w.log.String(), "Idempotency-Key not updated") {
		t.Errorf("the log says %s", w.log)
	}
	w.refused("at once", w.post("/v1/admin/dispatches", body, "k"), 409, "IDEMPOTENCY_KEY_IN_USE")
	p.exec("DROP TRIGGER broken")
	p.dies()
	w.post("/v1/admin/dispatches", body, "k").want(201).wantBody(first.raw) // after the lease
	if n := p.count("dispatches"); n != 1 {
		t.Errorf("%d dispatches", n)
	}
}

type brokenJobs struct{ noJobs }

func (brokenJobs) RunNow(context.Context, string, string) (cronjob.Run, error) { panic("broken") }

// TestAPanic is answered, and the key is free again.
func TestAPanic(t *testing.T) {
	w := newWorld(t, func(a *API) { a.Jobs = brokenJobs{} })
	for range 2 {
		w.refused("a panic", w.post("/v1/admin/jobs/tidy/run", "", "k"), 500, "INTERNAL")
	}
}

// TestInvalidIdempotencyKeys: they are refused before anything is written.
func TestInvalidIdempotencyKeys(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"", "\x00", "\x7f", "한국", strings.Repeat("a", 256), "a\tb"} {
		w.refused(strconv.Quote(name), w.post("/v1/admin/dispatches", order(1), name), 422, "VALIDATION_FAILED")
	}
	for _, name := range []string{"a", " ", strings.Repeat("~", 255), `"quoted"`} {
		w.post("/v1/admin/dispatches", order(1), name).want(201)
	}
	w.call("GET", "/v1/admin/dispatches", key, "", "Idempotency-Key", "").want(200).wantItems(4)
	large := `{"note":"` + strings.Repeat("x", 2<<20) + `"}`
	w.refused("a large body", w.post("/v1/admin/drivers/bulk", large, "large"), 413, "BODY_TOO_LARGE")
	w.refused("a body too large for this", w.post("/v1/admin/dispatches", large[:100<<10], "l"), 413, "BODY_TOO_LARGE")
}

// TestALargeBulk: a MiB of drivers, with tokens, is replayed as any.
func TestALargeBulk(t *testing.T) {
	eachServerPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		long := "Kim " + strings.Repeat("★", 196) // as long as a name can be, with one word to index
		one := strings.Replace(driverBody, `"Kim"`, `"`+long+`","locale":"ko-KR","regions":["`+strings.Repeat("부", 64)+`"]`, 1)
		one = strings.Replace(one, `,"regions":["seoul"]`, "", 1)
		all := `{"drivers":[` + strings.TrimSuffix(strings.Repeat(one+",", 1000), ",") + `],"issue_tokens":true` + "}"
		all += strings.Repeat(" ", max(0, maxBulkBody-len(all)))
		if len(all) > maxBulkBody {
			t.Fatalf("%d bytes", len(all))
		}
		first := w.post("/v1/admin/drivers/bulk", all, "bulk").want(200).wantItems(1000)
		w.same("a bulk", first, w.post("/v1/admin/drivers/bulk", all, "bulk"))
		p.dies()
		again := w.post("/v1/admin/drivers/bulk", all, "bulk").want(200).wantItems(1000)
		if items(again)[999]["id"] != items(first)[999]["id"] || p.count("drivers") != 1000 {
			t.Errorf("%.300s; %d drivers", again.raw, p.count("drivers"))
		}
	})
}

// impatient is a store whose caller disconnects as soon as a driver is committed.
type impatient struct {
	driverStore
	hangUp func()
}

func (s impatient) CreateDriver(ctx context.Context, v dispatch.Driver) (dispatch.DriverRecord, error) {
	made, err := s.driverStore.CreateDriver(ctx, v)
	s.hangUp()
	return made, err
}

// TestAClientThatHangsUp: the answer is stored, and the client's next request gets it.
func TestAClientThatHangsUp(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	w := newWorld(t, func(a *API) { a.Stores.Drivers = impatient{a.Stores.Drivers, hangUp} })
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, request(ctx, "POST", "/v1/admin/drivers", key, driverBody, "Idempotency-Key", "k"))
	w.post("/v1/admin/drivers", driverBody, "k").want(201).wantHeader("Idempotent-Replayed", "true").wantBody(rec.Body.String())
}

// TestStatementsWithoutAnIdempotencyKey: a request without a key runs no more statements, by the server's count.
func TestStatementsWithoutAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t, servertest.StartMariaDB(t).URL(t)) // a server of its own: it counts the statements of all its clients
	repositorytest.Migrate(t, p.url)
	w := newWorldOn(t, p.url)
	questions := func() (n int) {
		var name string
		noError(t, p.raw.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n))
		return n
	}
	w.dispatch(1)
	before := questions()
	w.dispatch(2)
	// The key, BEGIN, the clock, the dispatch, its words, the event, its place in the webhooks' queue, COMMIT; and SHOW. Each of the service's
	// two connections is asked besides whether its server takes writes.
	if n := questions() - before; n != 11 {
		t.Errorf("%d statements", n)
	}
	if p.count("idempotency_keys") != 0 {
		t.Error("a key was kept")
	}
}
