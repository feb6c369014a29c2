package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/config"
	"firsttap/dispatch"
	"firsttap/handler"
	"firsttap/lock"
	"firsttap/migrations"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/service"
	"firsttap/telemetry"
)

const (
	// redisTimeout is what an accept may lose to a Redis that has just gone away.
	redisTimeout = 100 * time.Millisecond
	// stopTime is what requests under way have to finish.
	stopTime = 10 * time.Second
)

// Serve runs the service until ctx ends. It stops in this order:
//
//  1. GET /readyz says 503, and for c.Drain the service serves on, so that whoever sends it requests stops to. This is
//     for a ctx that errTerminated ended; others skip it.
//  2. The listeners close, and the live streams' clients are told to connect again, elsewhere.
//  3. Requests under way finish, for stopTime at most.
//  4. The background work ends: jobs under way end, the ledger of taps writes what it has, and those who were turned away
//     in vain are told so.
//  5. Pushes under way end, and those that were not sent are given back to the other instances.
//  6. The spans that are left are sent, and the connections close.
//
// What a step does is over when the next one begins. A ctx that ends while the database is being migrated ends that, wherever
// it is, and the next start goes on with it.
func Serve(ctx context.Context, c config.Config, log *slog.Logger, stdout io.Writer) (err error) {
	if err := c.MakeSecrets(); err != nil {
		return err
	}
	front, err := openFront(ctx, c, log)
	if err != nil {
		return err
	}
	defer front.close()
	store, err := open(ctx, c, log)
	if err != nil {
		return toldToEnd(ctx, log, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := prepare(ctx, c, store, log); err != nil {
		return toldToEnd(ctx, log, err)
	}
	system, _, _ := strings.Cut(c.DatabaseURL, "://")
	metrics, err := telemetry.Open(ctx, telemetry.Options{
		Database: system, Version: Version, Instance: instanceName(), Tracing: c.Tracing, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, metrics.Close()) }()
	log = metrics.Log(log)
	probe := store.Probe(ctx)
	metrics.Store(store, probe.Up)
	locks, err := openJobLocks(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	locks.metrics = lock.NewMetrics(telemetry.OfStrategy(c.JobLock, metrics))
	news, err := openNews(ctx, c, store, locks, metrics, log)
	if err != nil {
		return err
	}
	defer news.Close()
	telling := begin(ctx)
	defer telling.end()
	news.run(telling, log)

	work := begin(ctx)
	defer work.end()
	work.Go(func() { probe.Run(work.ctx) })
	revocations, err := followRevocations(ctx, work, store, metrics, log)
	if err != nil {
		return err
	}
	idTokens, closeFirebase, err := openFirebase(ctx, c.Push, metrics, log)
	if err != nil {
		return err
	}
	defer closeFirebase()
	tokens := service.NewTokens(service.TokenOptions{
		Secret: []byte(c.JWTSecret), Previous: c.PreviousSecrets(), Now: time.Now,
		IDTokens: idTokens, Drivers: store, Revocations: revocations,
	})
	api := handler.API{
		Store: store, Tokens: tokens, Keys: service.NewKeys(store),
		Streams: news.hub, Redriven: news.hub.Wake, Revocations: revocations,
		DriverRate: c.DriverRate, AdminRate: c.AdminRate, SessionSecret: []byte(c.JWTSecret),
		PreviousSecrets: c.PreviousSecrets(), Firebase: browserSignIn(c.Push),
		DatabaseUp: probe.Up, Now: time.Now, Log: log, Answered: metrics.API.Answered, Version: Version,
	}
	api.SignIns = service.NewSignIns(service.SignInOptions{
		Limits: service.UsualSignInLimits(), Store: store, Counter: metrics.API, Now: time.Now, Log: log,
	})
	work.Go(func() { api.SignIns.Run(work.ctx) })
	if err := openLimits(&api, work, c, metrics, log); err != nil {
		return err
	}
	gate, err := openGate(ctx, work, c, metrics, log)
	if err != nil {
		return err
	}
	var locking service.Locks
	if gate != nil {
		locking, api.RedisDegraded = gate, gate.Degraded
	}
	api.Acceptor = service.NewAcceptor(service.AcceptorOptions{
		Claims: store, Locks: locking, LockTTL: c.AcceptLockTTL, Attempts: keepTaps(work, store, metrics, log),
		Counter: metrics.API, Log: log,
	})
	countLostClaims(api.Acceptor, metrics)
	api.Work = service.NewWork(service.WorkOptions{
		Store: store, Acceptor: api.Acceptor, Now: time.Now, OnLimited: limitedWithdrawals(metrics, log),
	})
	api.Dispatcher = service.NewDispatcher(store, api.Acceptor)
	work.Go(func() { api.Acceptor.Run(work.ctx) })
	jobs, err := openSchedule(c, store, locks, metrics, log)
	if err != nil {
		return err
	}
	api.Jobs = jobs
	work.Go(func() {
		if err := jobs.Run(work.ctx); err != nil {
			log.Error("the schedule did not end as it should", "error", err)
		}
	})
	drain := &draining{last: c.Drain, log: log}
	api.Draining = drain.begun.Load
	return front.serve(ctx, metrics.Server(handler.New(api)), operations(metrics.Registry), drain, news.hub.Close, stdout)
}

// toldToEnd returns nil for the error of a start that the end of ctx has cut off, which is none, and err otherwise.
func toldToEnd(ctx context.Context, log *slog.Logger, err error) error {
	if ctx.Err() == nil {
		return err
	}
	log.Warn("the instance was told to end before its database was ready; the next start goes on with that", "error", err)
	return nil
}

// openGate returns the gate before the database, nil without Redis. It is closed when work has ended.
func openGate(ctx context.Context, work *background, c config.Config, metrics *telemetry.Telemetry, log *slog.Logger) (gate *lock.Gate, err error) {
	defer func() { telemetry.WatchGate(metrics, gate) }()
	if c.RedisURL == "" {
		return nil, nil
	}
	client, err := redisclient.Dial(c.RedisURL, redisTimeout)
	if err != nil {
		return nil, err
	}
	work.closers = append(work.closers, func() { client.Close() })
	metrics.Redis("gate", client)
	gate = lock.NewGate(client, redisTimeout, log, lock.NewMetrics(telemetry.OfStrategy("gate", metrics)))
	work.Go(func() { gate.Run(work.ctx) })
	checkEviction(ctx, gate, log)
	return gate, nil
}

// followRevocations reads which drivers' tokens are revoked, and goes on reading.
func followRevocations(ctx context.Context, work *background, store *repository.Store,
	metrics prometheus.Registerer, log *slog.Logger,
) (*service.Revocations, error) {
	revocations, err := service.NewRevocations(ctx, store, log)
	if err != nil {
		return nil, fmt.Errorf("read the revoked tokens: %w", err)
	}
	work.Go(func() { revocations.Run(work.ctx, service.ReadRevocations) })
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firsttap_revocations_age_seconds", Help: "How long ago it was read whose tokens were revoked.",
	}, func() float64 { return revocations.Age().Seconds() }))
	return revocations, nil
}

// keepTaps returns a ledger that records each tap behind its answer.
func keepTaps(work *background, store *repository.Store, metrics prometheus.Registerer, log *slog.Logger) *service.Ledger {
	ledger := service.NewLedger(store, instanceName(), log)
	work.Go(func() { ledger.Run(work.ctx) })
	metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "firsttap_attempts_dropped_total", Help: "Taps on Accept that the ledger could not keep.",
	}, func() float64 { return float64(ledger.Dropped()) }))
	return ledger
}

// limitedWithdrawals counts and logs the withdrawals that are refused because there were too many.
func limitedWithdrawals(metrics prometheus.Registerer, log *slog.Logger) func(dispatch.DriverID, dispatch.ID) {
	limited := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "firsttap_withdrawals_limited_total", Help: "Withdrawals refused because the driver had made too many.",
	})
	metrics.MustRegister(limited)
	return func(driver dispatch.DriverID, id dispatch.ID) {
		limited.Inc()
		log.Warn("withdrawal refused: the driver has given back too many dispatches", "driver", driver, "dispatch", id)
	}
}

// background is work that outlasts the requests.
type background struct {
	sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
	closers []func()
}

// begin returns background work that goes on after ctx, until end.
func begin(ctx context.Context) *background {
	b := &background{}
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	return b
}

// end tells the work to end, waits until it has, and closes what it stood on.
func (b *background) end() {
	b.stop()
	b.Wait()
	for _, c := range b.closers {
		c()
	}
}

// prepare brings the schema up to date, or refuses where that is for others to do.
func prepare(ctx context.Context, c config.Config, store *repository.Store, log *slog.Logger) error {
	ready := func(m *migrations.Migrator) error {
		_, err := m.Up(ctx)
		return err
	}
	if !c.Migrate {
		ready = func(m *migrations.Migrator) error {
			switch n, err := m.Missing(ctx); {
			case err != nil:
				return err
			case n > 0:
				return fmt.Errorf("FIRSTTAP_MIGRATE=off, and the database lacks %d of the migrations: run \"firsttap migrate up\" first", n)
			}
			return nil
		}
	}
	for {
		err := store.Migrate(ready)
		if err == nil {
			break
		}
		if !errors.Is(err, migrations.ErrBusy) {
			return err
		}
		log.Warn("another process migrates the database; this one waits for it", "error", err)
	}
	store.CheckDurability(ctx)
	return service.NewKeys(store).PutFirst(ctx, c.AdminKey)
}

func checkEviction(ctx context.Context, g *lock.Gate, log *slog.Logger) {
	switch policy, err := g.EvictionPolicy(ctx); {
	case err != nil:
		log.Warn("redis is not there yet, going on without it", "error", err)
	case policy != "noeviction":
		log.Warn("Redis may drop locks to make room: set maxmemory-policy to noeviction", "policy", policy)
	}
}

func shutDown(servers []*http.Server, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			log.Warn("requests were cut off", "address", s.Addr, "error", err)
			s.Close()
		}
	}
}

func announce(c config.Config, addr net.Addr, stdout io.Writer) {
	host, port, err := net.SplitHostPort(addr.String())
	if err == nil && net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	fmt.Fprintf(stdout, "FirstTap listens on http://%s\n", net.JoinHostPort(host, port))
	for _, f := range c.SecretFiles {
		fmt.Fprintf(stdout, "secret in %s\n", f)
	}
}

func countLostClaims(acceptor *service.Acceptor, metrics prometheus.Registerer) {
	metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "firsttap_lost_claims_total", Help: "Claims whose drivers were told SUCCESS and that the database has lost.",
	}, func() float64 { return float64(acceptor.LostClaims()) }))
}
