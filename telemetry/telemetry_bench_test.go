package telemetry

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/handler"
	"firsttap/lock"
	"firsttap/migrations"
	"firsttap/notify/stream"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/servertest"
	"firsttap/service"
	"firsttap/systemtest"
)

// tapped is an API within this process, and two drivers' taps on a dispatch that the first has.
type tapped struct {
	api           http.Handler
	winner, loser string // tokens
	path          string
}

type jobs = handler.Jobs

// openTapped makes the API with its telemetry, or without.
func openTapped(b *testing.B, watched bool) *tapped {
	b.Helper()
	ctx, log := b.Context(), slog.New(slog.DiscardHandler)
	seen, err := Open(ctx, Options{Database: "sqlite", Log: log})
	must(b, err)
	options := repository.Options{Log: log}
	if watched {
		options.Observer = seen.Statement
	}
	store, err := repository.Open(ctx, "sqlite://"+filepath.Join(b.TempDir(), "my.db"), options)
	must(b, err)
	b.Cleanup(func() { store.Close() })
	must(b, store.Migrate(func(m *migrations.Migrator) error { _, err := m.Up(ctx); return err }))
	client, err := redisclient.Dial(servertest.RedisURL(b), time.Second)
	must(b, err)
	b.Cleanup(func() { client.Close() })
	gate := lock.NewGate(client, time.Second, log, nil)

	revocations, err := service.NewRevocations(ctx, store, log)
	must(b, err)
	tokens := service.NewTokens(service.TokenOptions{
		Secret: []byte("a-secret-for-the-tests-of-firsttap"), Now: time.Now, Revocations: revocations,
	})
	o := service.AcceptorOptions{Claims: store, Gate: gate, LockTTL: 5 * time.Second, Log: log}
	var answered func(method, route string, status int, took time.Duration)
	if watched {
		seen.WatchStore(store, func() bool { return true })
		seen.WatchRedis("gate", client)
		o.Counter, answered = seen.Requests, seen.Requests.ObserveRequest
	}
	acceptor := service.NewAcceptor(o)
	api := handler.API{
		Store: store, Acceptor: acceptor, Tokens: tokens, Keys: service.NewKeys(store), DriverRate: 1e9, AdminRate: 1e9,
		DriverService: service.NewDriverService(service.DriverServiceOptions{Store: store, Acceptor: acceptor, Now: time.Now}),
		Backoffice:    service.NewBackoffice(store, acceptor), Now: time.Now, Log: log, ObserveRequest: answered,
		Streams: stream.NewHub(stream.Options{}), Jobs: struct{ jobs }{}, Revocations: revocations,
	}
	must(b, service.NewKeys(store).StoreFirst(ctx, systemtest.AdminKey))
	t := &tapped{api: handler.New(api)}
	server := httptest.NewServer(t.api)
	defer server.Close()
	i := &systemtest.Instance{T: b, URL: server.URL}
	drivers, id := systemtest.MakeDrivers(b, i, 2), systemtest.MakeDispatch(b, i)
	t.winner, t.loser, t.path = drivers[0].Token, drivers[1].Token, "/v1/dispatches/"+id+"/accept"
	if r := systemtest.Accept(i, id, drivers[0], 1); !r.Won() {
		b.Fatal(r)
	}
	if _, err := dispatch.ParseID(id); err != nil {
		b.Fatal(err)
	}
	return t
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// taps sends n of them, one after the other, and returns what each took and allocated on average.
func (t *tapped) taps(b *testing.B, token string, n, want int) (ns, allocs float64) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for range n {
		r := httptest.NewRequest(http.MethodPost, t.path, strings.NewReader(`{"round":1}`))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		t.api.ServeHTTP(w, r)
		if w.Code != want {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return float64(took.Nanoseconds()) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n)
}

// BenchmarkAcceptWatched measures the cost of metrics per tap: the same taps, with and without, in turn. ratio is the median of
// the rounds' ratios; a loser is turned away by what its process knows, a winner's second tap asks Redis and the database.
func BenchmarkAcceptWatched(b *testing.B) {
	bare, watched := openTapped(b, false), openTapped(b, true)
	for name, c := range map[string]struct {
		token     func(*tapped) string
		n, status int
	}{
		"loser":    {func(t *tapped) string { return t.loser }, 2000, http.StatusConflict},
		"replayed": {func(t *tapped) string { return t.winner }, 200, http.StatusOK},
	} {
		b.Run(name, func(b *testing.B) {
			var ratios, more []float64
			for round := 0; b.Loop() || round < 3; round++ {
				order := []*tapped{bare, watched}
				if round%2 == 1 {
					slices.Reverse(order)
				}
				ns, allocs := map[*tapped]float64{}, map[*tapped]float64{}
				for _, t := range order {
					ns[t], allocs[t] = t.taps(b, c.token(t), c.n, c.status)
				}
				ratios = append(ratios, ns[watched]/ns[bare])
				more = append(more, allocs[watched]-allocs[bare])
			}
			slices.Sort(ratios)
			slices.Sort(more)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(more[len(more)/2], "more-allocs/tap")
			b.ReportMetric(0, "ns/op")
		})
	}
}
