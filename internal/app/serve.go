package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/handler"
	"firsttap/internal/auth"
	"firsttap/internal/config"
	"firsttap/internal/limit"
	"firsttap/internal/redisclient"
	"firsttap/internal/telemetry"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/repository/database"
	"firsttap/schedule"
	"firsttap/service"
)

const (
	// defaultRedisTimeout bounds the delay of an accept when Redis stops answering.
	defaultRedisTimeout = 100 * time.Millisecond
	// defaultStopTime is how long requests under way may take to finish when the instance stops.
	defaultStopTime = 10 * time.Second
)

// errStopped is the error of a start that ended with its context while the database was opened or migrated.
var errStopped = errors.New("stopped before the database was ready")

// instance is a serving process and its parts.
type instance struct {
	config    config.Config
	log       *slog.Logger
	commits   commits
	telemetry *telemetry.Telemetry
	store     *repository.Store
	probe     *database.Probe
	migrated  migrated
	locks     *jobLocks
	listeners *listeners
	work      *group // background work of the requests: it outlasts them, and ends before the notifier
	notifier  *notifier
	clients   []redisclient.Client
	ending    ending
}

// ending holds the stop function of each part, nil for a part that was not started.
type ending struct {
	listeners, work, notifier, firebase, telemetry, locks, database func() error
}

// Serve runs the service until ctx ends. If SIGTERM ended ctx, GET /readyz first answers 503 for c.Drain while the service
// goes on, so that a load balancer stops sending requests; then the parts stop in the order of (*instance).stop.
//
// If ctx ends while the database is opened or migrated, Serve returns nil: the next start continues the migration. Serve calls onReady
// once, when requests are answered.
func Serve(ctx context.Context, c config.Config, log *slog.Logger, onReady func(Ready)) (err error) {
	if err := c.MakeSecrets(); err != nil {
		return err
	}
	if samples := c.SampleSecrets(); len(samples) > 0 {
		log.Warn("anybody can read the secrets of docker-compose.yml, and this instance has them; in production set others",
			"settings", samples)
	}
	redisclient.LogTo(log)
	i := &instance{config: c, log: log}
	began := time.Now()
	log.Info("firsttap starts", "version", Version, "instance", instanceName(), "settings", c.Changed)
	defer func() {
		if err = errors.Join(err, i.stop()); err == nil {
			log.Info("firsttap has stopped; everything that it had begun is done or handed on", "version", Version,
				"ran", time.Since(began))
		}
	}()
	api, err := i.start(ctx)
	switch {
	case errors.Is(err, errStopped):
		log.Warn("instance stopped before it was ready; the next start resumes an interrupted migration", "error", err)
		return nil
	case err != nil:
		return err
	}
	return i.listeners.serve(ctx, i.telemetry.WrapServer(api), operations(i.telemetry.Registry), func() {
		onReady(Ready{URL: urlOf(i.listeners.addr.String()), Config: c, Migrations: i.migrated.steps, Created: i.migrated.fromEmpty})
	})
}

// stop ends the parts one after the other, in the order of this list.
func (i *instance) stop() error {
	var errs []error
	for _, end := range []func() error{
		i.ending.listeners, // no new requests; live streams end; requests under way finish within the stop time
		i.ending.work,      // scheduled jobs, reannouncements and the ledger of attempts
		i.ending.notifier,  // pushes and webhooks under way; the others go back to the outbox
		i.ending.firebase,
		i.ending.telemetry, // the last spans are sent
		i.ending.locks,
		i.closeClients, // Redis
		i.ending.database,
	} {
		if end != nil {
			errs = append(errs, end())
		}
	}
	return errors.Join(errs...)
}

// closeClients closes the Redis clients. A connection that can't be closed properly is no failure of the instance.
func (i *instance) closeClients() error {
	for _, c := range i.clients {
		c.Close()
	}
	return nil
}

// start makes the parts and connects them: first the listeners, which answer 503 until serve gets the API.
func (i *instance) start(ctx context.Context) (api http.Handler, err error) {
	if i.listeners, err = listen(ctx, i.config, i.log); err != nil {
		return api, err
	}
	i.ending.listeners = i.listeners.close
	scheme, _, _ := strings.Cut(i.config.DatabaseURL, "://")
	i.telemetry, err = telemetry.Open(ctx, telemetry.Options{
		Database: scheme, Version: Version, Instance: instanceName(), Tracing: i.config.Tracing, Log: i.log,
	})
	if err != nil {
		return api, err
	}
	i.ending.telemetry = i.telemetry.Close
	i.telemetry.WatchRoles(i.config.Roles)
	i.log = i.telemetry.WrapLogger(i.log)
	owner := dispatch.NewUniqueID("ins_", time.Now()) // of the events and notifications that this instance leases
	if err := i.openStore(ctx, owner); err != nil && ctx.Err() != nil {
		return api, fmt.Errorf("%w: %w", errStopped, err)
	} else if err != nil {
		return api, err
	}
	lockMetrics := lock.NewMetrics(telemetry.WithStrategy(i.config.JobLock, i.telemetry))
	if i.locks, err = openJobLocks(i.config, lockMetrics); err != nil {
		return api, err
	}
	i.ending.locks = i.locks.Close
	if err := i.openNotifier(ctx, owner); err != nil {
		return api, err
	}
	i.work = newGroup(ctx)
	i.ending.work = i.work.end
	jobs, err := i.openSchedule()
	if err != nil {
		return api, err
	}
	open := handler.API{
		Roles: i.config.Roles, DatabaseUp: i.probe.Up, JobsBlocked: jobs.Blocked, Draining: i.listeners.draining.Load,
		AllowedOrigins: i.config.AllowedOrigins, Now: time.Now, Log: i.log, ObserveRequest: i.telemetry.Requests.ObserveRequest,
		Version: Version,
	}
	if !i.config.Has(config.RoleAPI) {
		if i.config.RedisURL != "" {
			open.RedisDegraded = i.notifier.hub.Degraded
			i.telemetry.WatchRedisUp(open.RedisDegraded)
		}
		return handler.NewWithoutAPI(open), nil
	}
	if err := i.openAPI(ctx, &open, jobs); err != nil {
		return api, err
	}
	return handler.New(open), nil
}

// openStore opens the database and brings its schema up to date.
func (i *instance) openStore(ctx context.Context, owner string) (err error) {
	o := repository.Options{
		OnCommit:   i.commits.announce,
		ReplicaURL: i.config.ReadURL, Observer: i.telemetry.Statement, Log: i.log,
	}
	if i.relaysOwn() {
		o.OutboxOwner, o.OutboxLease = owner, i.pushLease()
	}
	if i.store, err = openStore(ctx, i.config, o); err != nil {
		return err
	}
	i.ending.database = i.store.Close
	if i.migrated, err = prepare(ctx, i.config, i.store, i.log); err != nil {
		return err
	}
	i.probe = i.store.Probe(ctx)
	i.telemetry.WatchStore(i.store, i.probe.Up)
	i.telemetry.WatchReplica(i.store.Replica)
	return nil
}

// openAPI creates the services that the API's handlers call.
func (i *instance) openAPI(ctx context.Context, api *handler.API, jobs *schedule.Scheduler) error {
	c := i.config
	tokens, revocations, err := i.openTokens(ctx)
	if err != nil {
		return err
	}
	signIns := auth.NewSignIns(auth.SignInOptions{
		Limits: auth.DefaultSignInLimits(), Store: i.store.Keys, Counter: i.telemetry.Requests, Now: time.Now, Log: i.log,
	})
	i.work.Go(func() { signIns.Run(i.work.ctx) })
	driverLimit, adminLimit, err := i.openLimits()
	if err != nil {
		return err
	}
	gate, err := i.openGate(ctx)
	if err != nil {
		return err
	}
	if gate != nil {
		api.RedisDegraded = func() bool {
			return gate.Degraded() || driverLimit.Degraded() || adminLimit.Degraded() || i.notifier.hub.Degraded()
		}
		i.telemetry.WatchRedisUp(api.RedisDegraded)
	}
	api.Acceptor = i.openAcceptor(gate)
	api.DriverService = i.openDriverService(api.Acceptor)
	api.Backoffice = service.NewBackoffice(i.store.Dispatches, i.store.Drivers, api.Acceptor)
	api.Webhooks = service.NewWebhooks(i.store.Webhooks, i.notifier.client)
	api.Stores, api.Jobs, api.Keys = storesOf(i.store), jobs, auth.NewKeys(i.store.Keys)
	api.Tokens, api.Revocations, api.SignIns = tokens, revocations, signIns
	api.Firebase, api.Zone = browserSignIn(c.Push), c.Push.Zone
	api.SessionSecret, api.PreviousSecrets = []byte(c.JWTSecret), c.PreviousSecrets()
	api.Streams, api.OnDue = i.notifier.hub, i.notifier.hub.WakeRelays
	api.DriverRate, api.AdminRate, api.DriverLimit, api.AdminLimit = c.DriverRate, c.AdminRate, driverLimit, adminLimit
	return nil
}

// dial returns a Redis client that is closed when the instance has stopped. It does not connect.
func (i *instance) dial(purpose string, timeout time.Duration) (redisclient.Client, error) {
	client, err := redisclient.Dial(i.config.RedisURL, timeout)
	if err != nil {
		return nil, err
	}
	i.clients = append(i.clients, client)
	i.telemetry.WatchRedis(purpose, client)
	return client, nil
}

// redisTimeout bounds each Redis command that a request waits for.
func (i *instance) redisTimeout() time.Duration {
	return cmp.Or(i.config.Timeouts.Redis, defaultRedisTimeout)
}

// openGate returns the gate before the database, nil without Redis.
func (i *instance) openGate(ctx context.Context) (gate *lock.Gate, err error) {
	defer func() { i.telemetry.WatchGate(gate) }()
	if i.config.RedisURL == "" {
		return nil, nil
	}
	timeout := i.redisTimeout()
	client, err := i.dial("gate", timeout)
	if err != nil {
		return nil, err
	}
	gate = lock.NewGate(client, timeout, i.log, lock.NewMetrics(telemetry.WithStrategy("gate", i.telemetry)))
	i.work.Go(func() { gate.Run(i.work.ctx, service.LockPrefix) })
	switch policy, err := gate.EvictionPolicy(ctx); {
	case err != nil:
		i.log.Warn("the eviction policy of Redis is not known; it must be noeviction, or Redis may evict locks to free memory",
			"error", err)
	case policy != "noeviction":
		i.log.Warn("Redis may evict locks to free memory; set maxmemory-policy to noeviction", "policy", policy)
	}
	return gate, nil
}

// openAcceptor returns the acceptor, which decides claims. Attempts are stored after the answers.
func (i *instance) openAcceptor(gate *lock.Gate) *service.Acceptor {
	var locks service.Gate
	if gate != nil {
		locks = gate
	}
	attempts := service.NewAttemptWriter(i.store.Offers, instanceName(), i.log)
	acceptor := service.NewAcceptor(service.AcceptorOptions{
		Claims: i.store.Dispatches, Gate: locks, LockTTL: i.config.AcceptLockTTL, Timeout: i.config.Timeouts.Claim, Attempts: attempts,
		Counter: i.telemetry.Requests, Log: i.log,
	})
	i.work.Go(func() { acceptor.Run(i.work.ctx) })
	i.work.Go(func() { attempts.Run(i.work.ctx) })
	i.telemetry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "firsttap_attempts_dropped_total", Help: "Taps on Accept that were not written to the ledger.",
		}, func() float64 { return float64(attempts.Dropped()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "firsttap_lost_claims_total", Help: "Claims answered with SUCCESS that the database has lost.",
		}, func() float64 { return float64(acceptor.LostClaims()) }))
	return acceptor
}

// openDriverService returns the use cases of drivers besides accepting. It logs withdrawals that exceed the limit.
func (i *instance) openDriverService(acceptor *service.Acceptor) *service.DriverService {
	limited := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "firsttap_withdrawals_limited_total", Help: "Withdrawals refused because the driver had made too many.",
	})
	i.telemetry.MustRegister(limited)
	return service.NewDriverService(service.DriverServiceOptions{
		Store: i.store.Dispatches, Offers: i.store.Offers, Drivers: i.store.Drivers, Acceptor: acceptor, Now: time.Now,
		OnLimited: func(driver dispatch.DriverID, id dispatch.ID) {
			limited.Inc()
			i.log.Warn(
				"withdrawal refused; the driver has reached the limit of withdrawals and keeps the dispatch",
				"driver", driver, "dispatch", id,
			)
		},
	})
}

// openTokens returns the verifier of drivers' tokens, and the revocations that it checks.
func (i *instance) openTokens(ctx context.Context) (*auth.Tokens, *auth.Revocations, error) {
	var revocations *auth.Revocations
	err := database.UntilReachable(ctx, openTime, i.log, func() (err error) {
		revocations, err = auth.NewRevocations(ctx, i.store.Drivers, i.log)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the revoked tokens: %w", err)
	}
	i.work.Go(func() { revocations.Run(i.work.ctx, auth.RevocationsInterval) })
	i.telemetry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firsttap_revocations_age_seconds", Help: "How long ago the revoked tokens were read.",
	}, func() float64 { return revocations.Age().Seconds() }))
	ids, err := i.openFirebase(ctx)
	if err != nil {
		return nil, nil, err
	}
	return auth.NewTokens(auth.TokenOptions{
		Secret: []byte(i.config.JWTSecret), Previous: i.config.PreviousSecrets(), Now: time.Now,
		IDTokens: ids, Drivers: i.store.Drivers, Revocations: revocations,
	}), revocations, nil
}

// openLimits returns the limiters of drivers and of admin keys, which hold over all instances that share a Redis. Without Redis
// they are nil, and each instance limits by itself.
func (i *instance) openLimits() (drivers, admins *limit.Limiter, err error) {
	if i.config.RedisURL == "" {
		return nil, nil, nil
	}
	// A client of its own: callers above their rate keep no claim waiting for a connection.
	timeout := i.redisTimeout()
	client, err := redisclient.Dial(i.config.RedisURL, timeout)
	if err != nil {
		return nil, nil, err
	}
	i.clients = append(i.clients, client)
	counts := limit.NewMetrics(i.telemetry)
	open := func(r limit.Rate) *limit.Limiter {
		o := r.Options()
		o.Redis, o.Namespace, o.Timeout, o.Log, o.Metrics = client, i.config.Namespace, timeout, i.log, counts
		l := limit.New(o)
		i.work.Go(func() { l.Run(i.work.ctx) })
		return l
	}
	return open(i.config.DriverRate), open(i.config.AdminRate), nil
}

// storesOf returns what is stored as the parts of the API need it.
func storesOf(s *repository.Store) handler.Stores {
	return handler.Stores{
		Answers: s.Journal, Audit: s.Journal, Board: s.Board, Deliveries: s.Webhooks, Devices: s.Devices, Dispatches: s.Dispatches,
		Drivers: s.Drivers, Erasure: s.Drivers, Events: s.Journal, Export: s.Export, ExportAudit: s.Export, Notifications: s.Notifications,
		Offers: s.Offers, Profiles: s.Drivers, Keys: s.Keys, Tokens: s.Drivers, Webhooks: s.Webhooks,
	}
}
