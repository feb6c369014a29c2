package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/config"
	"firsttap/dispatch"
	"firsttap/lock"
	"firsttap/notify"
	"firsttap/notify/fcm"
	"firsttap/notify/stream"
	"firsttap/redisclient"
	"firsttap/repository"
	"firsttap/telemetry"
)

const (
	// pushLease is how long a push that a process has leased waits for it, should it die: an attempt takes 15 s at most.
	pushLease = 30 * time.Second
	// largeAudience is told together that an offer is over; a topic is slower, and it reaches those who were not told.
	largeAudience = 500
	// relayWait and relayLease are how the one relay of FIRSTTAP_RELAY=leader is chosen.
	relayWait  = time.Second
	relayLease = 10 * time.Second
	relayPause = 100 * time.Millisecond
	relayName  = "relay"
)

// closingSender is a sender that keeps connections.
type closingSender interface {
	notify.Sender
	Close()
}

func openSender(ctx context.Context, c config.Push, seen *telemetry.Telemetry, log *slog.Logger) (closingSender, error) {
	if !c.FCM {
		return notify.NewLog(log), nil
	}
	return fcm.New(ctx, fcm.Options{
		Project: c.Project, CredentialsFile: c.Credentials, Endpoint: c.Endpoint, Zone: c.Zone, Through: seen.Outgoing,
	})
}

// news is everything that tells drivers and the backoffice what has happened.
type news struct {
	hub     *stream.Hub
	relay   *notify.Relay
	locks   *jobLocks // for the one relay there is; nil where every instance relays
	closers []func()
}

// streamTimeout is what Redis may take to pass an event on.
const streamTimeout = time.Second

// openNews has the live stream and the relay hear of what store commits.
func openNews(ctx context.Context, c config.Config, store *repository.Store, locks *jobLocks, metrics *telemetry.Telemetry, log *slog.Logger) (n *news, err error) {
	n = &news{}
	if c.Push.Leader {
		n.locks = locks
	}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	options := stream.Options{OnWake: func() { n.relay.Wake() }, Metrics: metrics, Log: log}
	if c.RedisURL != "" {
		if options.Redis, err = redisclient.Dial(c.RedisURL, streamTimeout); err != nil {
			return n, err
		}
		n.closers = append(n.closers, func() { options.Redis.Close() })
		metrics.Redis("stream", options.Redis)
	}
	n.hub = stream.NewHub(options)
	sender, err := openSender(ctx, c.Push, metrics, log)
	if err != nil {
		return n, err
	}
	n.closers = append(n.closers, sender.Close)
	store.OnCommit(n.hub.Publish)
	n.openRelay(c.Push, store, sender, metrics, log)
	return n, nil
}

func (n *news) openRelay(c config.Push, store *repository.Store, sender notify.Sender, metrics prometheus.Registerer, log *slog.Logger) {
	owner := dispatch.Unique("ins_", time.Now())
	outbox := store.Outbox(repository.OutboxOptions{Owner: owner, Term: pushLease, TopicFrom: largeAudience})
	n.relay = notify.NewRelay(notify.RelayOptions{
		Outbox: outbox, Topics: outbox, Devices: store, Sender: sender,
		Publish: n.hub.Publish, WakeOthers: n.hub.Wake, Log: log, Metrics: metrics,
	})
	if c.Leader {
		store.OnCommit(func(dispatch.Dispatch, []dispatch.Event) { n.hub.Wake() })
		return
	}
	store.BornLeased(owner, pushLease)
	store.OnCommit(n.relay.Committed)
}

func (n *news) run(b *background, log *slog.Logger) {
	b.Go(func() { n.hub.Run(b.ctx) })
	b.Go(func() {
		if n.locks == nil {
			n.relay.Run(b.ctx)
			return
		}
		locker := lock.New(n.locks.strategy, lock.Options{Who: instanceName(), Log: log, Metrics: n.locks.metrics})
		defer locker.Close()
		n.relayAsLeader(b.ctx, locker.Leader(relayName, relayWait, relayLease), log)
	})
}

// Close closes the connections.
func (n *news) Close() {
	for _, c := range n.closers {
		c()
	}
}

// relayAsLeader relays whenever this instance has the lead, until ctx ends.
func (n *news) relayAsLeader(ctx context.Context, leader *lock.Leader, log *slog.Logger) {
	for ctx.Err() == nil {
		err := leader.Campaign(ctx, func(ctx context.Context) error {
			log.Info("this instance relays")
			n.relay.Run(ctx)
			return nil
		})
		switch {
		case err == nil || errors.Is(err, lock.ErrHeld) || ctx.Err() != nil:
			continue
		case errors.Is(err, lock.ErrLost):
			log.Warn("another instance may relay now", "error", err)
		default:
			// Whoever sends has leased it: two who relay do not send twice, and nobody would be told if none did.
			log.Warn("nobody can tell who relays, so this instance does for a while", "error", err)
			while, stop := context.WithTimeout(ctx, relayLease)
			n.relay.Run(while)
			stop()
		}
		pause(ctx, relayPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
