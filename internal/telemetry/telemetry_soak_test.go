//go:build soak

package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/handler"
	"firsttap/internal/auth"
	"firsttap/internal/redisclient"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/migrations"
	"firsttap/notify/stream"
	"firsttap/repository"
	"firsttap/service"
	"firsttap/systemtest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// tapped is an API within this process, and two drivers' taps on a dispatch that the first has.
type tapped struct {
	api           http.Handler
	winner, loser string // tokens
	path          string
}

type jobs = handler.Jobs

// openTapped makes the API with its telemetry, or without.
func openTapped(t testing.TB, watched bool) *tapped {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	seen, err := Open(ctx, Options{Database: "sqlite", Log: log})
	must(t, err)
	options := repository.Options{Log: log}
	if watched {
		options.Observer = seen.Statement
	}
	store, err := repository.Open(ctx, "sqlite://"+filepath.Join(t.TempDir(), "my.db"), options)
	must(t, err)
	t.Cleanup(func() { store.Close() })
	must(t, store.Migrate(func(m *migrations.Migrator) error { _, err := m.Up(ctx); return err }))
	client, err := redisclient.Dial(servertest.RedisURL(t), time.Second)
	must(t, err)
	t.Cleanup(func() { client.Close() })
	gate := lock.NewGate(client, time.Second, log, nil)

	revocations, err := auth.NewRevocations(ctx, store.Drivers, log)
	must(t, err)
	tokens := auth.NewTokens(auth.TokenOptions{
		Secret: []byte("a-secret-for-the-tests-of-firsttap"), Now: time.Now, Revocations: revocations,
	})
	o := service.AcceptorOptions{Claims: store.Dispatches, Gate: gate, LockTTL: 5 * time.Second, Log: log}
	var answered func(method, route string, status int, took time.Duration)
	if watched {
		seen.WatchStore(store, func() bool { return true })
		seen.WatchRedis("gate", client)
		o.Counter, answered = seen.Requests, seen.Requests.ObserveRequest
	}
	acceptor := service.NewAcceptor(o)
	api := handler.API{
		Stores: storesOf(store), Acceptor: acceptor, Tokens: tokens, Keys: auth.NewKeys(store.Keys), DriverRate: 1e9, AdminRate: 1e9,
		DriverService: service.NewDriverService(service.DriverServiceOptions{Store: store.Dispatches, Offers: store.Offers, Drivers: store.Drivers, Acceptor: acceptor, Now: time.Now}),
		Backoffice:    service.NewBackoffice(store.Dispatches, store.Drivers, acceptor), Now: time.Now, Log: log, ObserveRequest: answered,
		Streams: stream.NewHub(stream.Options{}), Jobs: struct{ jobs }{}, Revocations: revocations,
	}
	must(t, store.Keys.EnsureKey(ctx, auth.FirstKey(systemtest.AdminKey)))
	opened := &tapped{api: handler.New(api)}
	server := httptest.NewServer(opened.api)
	defer server.Close()
	i := &systemtest.Instance{T: t, URL: server.URL}
	drivers, id := systemtest.MakeDrivers(t, i, 2), systemtest.MakeDispatch(t, i)
	opened.winner, opened.loser, opened.path = drivers[0].Token, drivers[1].Token, "/v1/dispatches/"+id+"/accept"
	if r := systemtest.Accept(i, id, drivers[0], 1); !r.Won() {
		t.Fatal(r)
	}
	return opened
}

// storesOf returns what is stored as the parts of the API need it.
func storesOf(s *repository.Store) handler.Stores {
	return handler.Stores{
		Answers: s.Journal, Audit: s.Journal, Board: s.Board, Deliveries: s.Webhooks, Devices: s.Devices, Dispatches: s.Dispatches,
		Drivers: s.Drivers, Erasure: s.Drivers, Events: s.Journal, Export: s.Export, ExportAudit: s.Export, Notifications: s.Notifications,
		Offers: s.Offers, Profiles: s.Drivers, Keys: s.Keys, Tokens: s.Drivers, Webhooks: s.Webhooks,
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// taps sends n of them, one after the other, and returns what each took and allocated on average.
func (o *tapped) taps(t testing.TB, token string, n, want int) (ns, allocs float64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for range n {
		r := httptest.NewRequest(http.MethodPost, o.path, strings.NewReader(`{"round":1}`))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		o.api.ServeHTTP(w, r)
		if w.Code != want {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return float64(took.Nanoseconds()) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n)
}

// The cost of metrics per tap: the same taps, with and without, in turn. A loser is turned away by what its process knows, a
// winner's second tap asks Redis and the database.
func TestSoakCostOfMetrics(t *testing.T) {
	bare, watched := openTapped(t, false), openTapped(t, true)
	for name, c := range map[string]struct {
		token     func(*tapped) string
		n, status int
	}{
		"loser":    {func(o *tapped) string { return o.loser }, 2000, http.StatusConflict},
		"replayed": {func(o *tapped) string { return o.winner }, 200, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			var ratios, more []float64
			end := time.Now().Add(testkit.SoakTime(t) / 2)
			for round := 0; round < 3 || time.Now().Before(end); round++ {
				order := []*tapped{bare, watched}
				if round%2 == 1 {
					slices.Reverse(order)
				}
				ns, allocs := map[*tapped]float64{}, map[*tapped]float64{}
				for _, o := range order {
					ns[o], allocs[o] = o.taps(t, c.token(o), c.n, c.status)
				}
				ratios = append(ratios, ns[watched]/ns[bare])
				more = append(more, allocs[watched]-allocs[bare])
			}
			slices.Sort(ratios)
			slices.Sort(more)
			t.Logf("medians of %d rounds: a tap with metrics takes %.3f times as long, and %.1f more allocations",
				len(ratios), ratios[len(ratios)/2], more[len(more)/2])
		})
	}
}
