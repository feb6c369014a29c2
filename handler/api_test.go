package handler

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/limit"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/repository/repositorytest"
	"firsttap/service"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

const key = "the-admin-key"

// world is the API on a database of its own.
type world struct {
	t      testing.TB
	api    http.Handler
	store  *repository.Store
	tokens *auth.Tokens
	ledger *service.AttemptWriter // nil if no taps are stored
	// revocations are read again when a test says so.
	revocations *auth.Revocations
	log         *strings.Builder
	path        string // of the database
	watch       *atomic.Pointer[database.StatementObserver]
}

// statement is called before each statement of the world's store.
func (w *world) statement(ctx context.Context, s database.Statement) (context.Context, func(error)) {
	if watch := w.watch.Load(); watch != nil {
		return (*watch)(ctx, s)
	}
	return ctx, func(error) {}
}

// observe has watch see each statement from now on.
func (w *world) observe(watch database.StatementObserver) { w.watch.Store(&watch) }

func newWorld(t testing.TB, change ...func(*API)) *world {
	t.Helper()
	return newWorldOn(t, repositorytest.URL(t, "sqlite"), change...)
}

// newWorldOn is the API on the migrated database at url, one instance of several.
func newWorldOn(t testing.TB, url string, change ...func(*API)) *world {
	t.Helper()
	w := &world{t: t, log: &strings.Builder{}, path: strings.TrimPrefix(url, "sqlite://"), watch: &atomic.Pointer[database.StatementObserver]{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	store := repositorytest.Open(t, url, repository.Options{Log: log, Observer: w.statement})
	w.store = store
	var err error
	w.revocations, err = auth.NewRevocations(t.Context(), store.Drivers, log)
	noError(t, err)
	w.tokens = auth.NewTokens(auth.TokenOptions{Secret: []byte("secret"), Now: time.Now, Revocations: w.revocations})
	api := API{
		Stores: storesOf(store), Tokens: w.tokens, Keys: auth.NewKeys(store.Keys), Revocations: w.revocations,
		Streams: stream.NewHub(stream.Options{}), DriverRate: 1e6, AdminRate: 1e6, Now: time.Now, Log: log,
		SessionSecret: []byte("secret"), DatabaseUp: func() bool { return store.Ping(context.Background()) == nil },
		SignIns: signIns(1e6), Jobs: noJobs{}, patience: testkit.Patience,
	}
	api.useStore(store, nil)
	noError(t, store.Keys.EnsureKey(t.Context(), auth.FirstKey(key)))
	stored.Store(&api, store)
	t.Cleanup(func() { stored.Delete(&api) })
	for _, c := range change {
		c(&api)
	}
	w.api = New(api)
	return w
}

// stored has the Store of each API that is being set up.
var stored sync.Map

func storeOf(a *API) *repository.Store {
	s, _ := stored.Load(a)
	return s.(*repository.Store)
}

// storesOf returns what is stored as the parts of the API need it.
func storesOf(s *repository.Store) Stores {
	return Stores{
		Answers: s.Journal, Audit: s.Journal, Board: s.Board, Deliveries: s.Webhooks, Devices: s.Devices, Dispatches: s.Dispatches,
		Drivers: s.Drivers, Erasure: s.Drivers, Events: s.Journal, Export: s.Export, ExportAudit: s.Export, Notifications: s.Notifications,
		Offers: s.Offers, Profiles: s.Drivers, Keys: s.Keys, Tokens: s.Drivers, Webhooks: s.Webhooks,
	}
}

// useStore sets the API's use cases over store. attempts may be nil.
func (a *API) useStore(store *repository.Store, attempts *service.AttemptWriter) {
	a.Acceptor = service.NewAcceptor(service.AcceptorOptions{
		Claims: store.Dispatches, LockTTL: 5 * time.Second, Timeout: testkit.Patience, Attempts: attempts, Log: a.Log,
	})
	a.DriverService = service.NewDriverService(service.DriverServiceOptions{
		Store: store.Dispatches, Offers: store.Offers, Drivers: store.Drivers, Acceptor: a.Acceptor, Now: time.Now,
	})
	a.Backoffice = service.NewBackoffice(store.Dispatches, store.Drivers, a.Acceptor)
	a.Webhooks = service.NewWebhooks(store.Webhooks, addresses{})
}

// signIns lets strangers fail that many times as often as usual.
func signIns(times int) *auth.SignIns {
	l := auth.DefaultSignInLimits()
	for _, a := range []*limit.Options{&l.KeyByAddress, &l.KeyTotal, &l.TokenByAddress, &l.TokenTotal} {
		a.Burst *= times
	}
	return auth.NewSignIns(auth.SignInOptions{Limits: l, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

func request(ctx context.Context, method, path, token, body string, headers ...string) *http.Request {
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

func (w *world) call(method, path, token, body string, headers ...string) reply {
	return w.serve(request(context.Background(), method, path, token, body, headers...), body)
}

// serve is the API's answer, which is compared with the document. A stream is hung up on after its first bytes.
func (w *world) serve(req *http.Request, body string) reply {
	rec := httptest.NewRecorder()
	if strings.HasSuffix(req.URL.Path, "/stream") {
		ctx, hang := context.WithCancel(req.Context())
		defer hang()
		w.api.ServeHTTP(&hangUp{rec, hang}, req.WithContext(ctx))
	} else {
		w.api.ServeHTTP(rec, req)
	}
	r := replyTo(w.t, req, body, rec)
	documented().check(w.t, req.Method, req.RequestURI, body, r)
	return r
}

type caller struct{ id, token string }

func (w *world) drivers(n int, change ...string) []caller {
	w.t.Helper()
	var bodies []string
	for i := range n {
		bodies = append(bodies, fields(map[string]any{
			"name": fmt.Sprintf("Kim %d", i), "phone": fmt.Sprintf("+8210%08d", i), "regions": []string{"seoul", "incheon"},
			"vehicle_class": "45m", "working_height_m": 45, "on_duty": true,
		}, change...))
	}
	r := w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+strings.Join(bodies, ",")+`],"issue_tokens":true}`).want(200).wantItems(n)
	drivers := make([]caller, n)
	for i, m := range items(r) {
		drivers[i] = caller{fmt.Sprint(at(m, "id")), fmt.Sprint(at(m, "token"))}
	}
	return drivers
}

// order is a body for a new dispatch whose work starts in that many hours; with later ones overriding.
func order(hours int, changes ...string) string {
	starts := time.Now().Add(time.Duration(hours) * time.Hour).UTC()
	body := map[string]any{
		"region": "seoul", "vehicle_class": "45m", "site_address": "서울시 강남구 1", "note": "게이트 2",
		"work_starts_at": starts, "work_ends_at": starts.Add(time.Hour), "fee": map[string]any{"amount": 350000, "currency": "KRW"},
	}
	return fields(body, changes...)
}

// fields is a body as JSON, with changes like `"name":"Kim"`; one that is "absent" is left out.
func fields(body map[string]any, changes ...string) string {
	for _, f := range changes {
		var override map[string]any
		if err := json.Unmarshal([]byte("{"+f+"}"), &override); err != nil {
			panic(err)
		}
		for k, v := range override {
			if body[k] = v; v == "absent" {
				delete(body, k)
			}
		}
	}
	return toJSON(body)
}

func toJSON(v any) string { return string(must(json.Marshal(v))) }

func (w *world) dispatch(hours int, fields ...string) string {
	w.t.Helper()
	r := w.call("POST", "/v1/admin/dispatches", key, order(hours, fields...)).want(201)
	return r.json["id"].(string)
}

func (w *world) accept(id string, d caller, body string) reply {
	return w.call("POST", "/v1/dispatches/"+id+"/accept", d.token, body)
}

// receipt returns the driver's receipt, once all taps are stored: the API waits a second for them at most.
func (w *world) receipt(id string, d caller) reply {
	w.t.Helper()
	if w.ledger != nil && !w.ledger.Flush(w.t.Context()) {
		w.t.Fatal("the taps are not stored")
	}
	return w.call("GET", "/v1/me/dispatches/"+id+"/claim", d.token, "")
}

func (w *world) on(id, action string, d caller) reply {
	return w.call("POST", "/v1/dispatches/"+id+"/"+action, d.token, "")
}

// expire moves the dispatch's window into the past: it opened and ended that long ago.
func (w *world) expire(id string, opened, ended time.Duration) {
	w.t.Helper()
	now := time.Now()
	w.exec("UPDATE dispatches SET opens_at = ?, expires_at = ? WHERE id = ?", now.Add(-opened).UnixMicro(), now.Add(-ended).UnixMicro(), id)
}

// expired creates a dispatch, moves its window into the past, and returns its id.
func (w *world) expired(hours int) string {
	w.t.Helper()
	id := w.dispatch(hours)
	w.expire(id, 20*time.Minute, 10*time.Minute)
	return id
}

func inFuture(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }

// putKey stores the key of that role; its id is key_ and the role.
func (w *world) putKey(role dispatch.Role, secret string) {
	w.t.Helper()
	w.putNamedKey("key_"+role.String(), role, secret)
}

// TestNewRefuses an API that lacks a required field, and names the field.
func TestNewRefuses(t *testing.T) {
	var whole API
	newWorld(t, func(a *API) { whole = *a })
	for _, name := range []string{
		"Stores.Board", "Acceptor", "DriverService", "Backoffice", "Tokens", "Keys", "Webhooks", "Jobs", "Streams", "Revocations", "Now", "Log",
	} {
		func() {
			defer func() {
				if got, want := fmt.Sprint(recover()), "handler: API."+name+" is missing"; got != want {
					t.Errorf("without %s: %s", name, got)
				}
			}()
			api := whole
			field := reflect.ValueOf(&api).Elem()
			for part := range strings.SplitSeq(name, ".") {
				field = field.FieldByName(part)
			}
			field.SetZero()
			New(api)
		}()
	}
}

// tables is the world's database, beside the store.
func (w *world) tables() *sql.DB {
	w.t.Helper()
	db, err := sql.Open("sqlite", w.path+"?_pragma=busy_timeout(5000)")
	noError(w.t, err)
	return db
}

// writes returns a function that reports whether anything was committed to the database since the last call.
func (w *world) writes(t testing.TB) func() bool {
	t.Helper()
	db := w.tables()
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1) // the number is about the others' commits
	version := func() (n int) {
		noError(t, db.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n))
		return n
	}
	last := version()
	return func() bool {
		before := last
		last = version()
		return last != before
	}
}

// exec runs a statement on the database.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	db := w.tables()
	defer db.Close()
	done, err := db.ExecContext(w.t.Context(), query, args...)
	noError(w.t, err)
	if n, err := done.RowsAffected(); n == 0 || err != nil {
		w.t.Fatalf("%s: %d rows, %v", query, n, err)
	}
}

func (w *world) putNamedKey(id string, role dispatch.Role, secret string) {
	w.t.Helper()
	sum := sha256.Sum256([]byte(secret))
	noError(w.t, w.store.Keys.EnsureKey(w.t.Context(), dispatch.Key{ID: id, Name: strings.TrimPrefix(id, "key_"), Role: role, Hash: hex.EncodeToString(sum[:])}))
}
