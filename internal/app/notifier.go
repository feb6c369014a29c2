package app

import (
	"cmp"
	"context"
	"sync"
	"time"

	"firsttap/dispatch"
	"firsttap/handler"
	"firsttap/internal/config"
	"firsttap/lock"
	"firsttap/notify"
	"firsttap/notify/fcm"
	"firsttap/notify/stream"
	"firsttap/notify/webhooks"
	"firsttap/repository/pushes"
)

// defaultPushLease is how long a push stays leased to a process that died. An attempt takes 15 s at most.
const defaultPushLease = 30 * time.Second

// notifier announces commits to drivers, the backoffice and other systems: the relay sends pushes, the courier webhooks, and the hub feeds
// the live streams. An instance that does not relay has no relay, sender and courier.
type notifier struct {
	*group
	hub     *stream.Hub
	relay   *notify.Relay
	sender  sender
	courier *webhooks.Courier
	client  *webhooks.Client
}

// sender is a notify.Sender that keeps connections.
type sender interface {
	notify.Sender
	Close()
}

// streamTimeout bounds each Redis command of the live streams.
const streamTimeout = time.Second

// openNotifier subscribes the hub and the relay to what the instance commits, and runs both. The relay leases events and
// notifications as owner. Without a relay of its own, or with one that an election chooses, an instance wakes all.
func (i *instance) openNotifier(ctx context.Context, owner string) (err error) {
	n := &notifier{group: newGroup(ctx)}
	timeout := cmp.Or(i.config.Timeouts.Stream, streamTimeout)
	options := stream.Options{Namespace: i.config.Namespace, RedisTimeout: timeout, Metrics: i.telemetry, Log: i.log}
	relays := i.config.Has(config.RoleRelay)
	if relays {
		options.OnWakeRelay = n.wake
	}
	if i.config.RedisURL != "" {
		client, err := i.dial("stream", timeout)
		if err != nil {
			return err
		}
		takeNamespace(ctx, i.config, client, i.log)
		options.Redis = client
	}
	n.hub = stream.NewHub(options)
	n.client = webhooks.NewClient(webhooks.ClientOptions{AllowPrivate: i.config.PrivateWebhooks})
	if relays {
		if err := i.openRelay(ctx, n, owner); err != nil {
			return err
		}
	}
	i.notifier, i.ending.notifier = n, n.close
	i.listeners.endStreams(n.hub)
	n.Go(func() { n.hub.Run(n.ctx) })
	n.Go(func() { i.probe.Run(n.ctx) }) // the relay needs it to the end
	if i.relaysOwn() {
		i.commits.subscribe(n.relay.OnCommit) // before the hub, which encodes each event
		i.commits.subscribe(n.hub.Publish)
		i.commits.subscribe(func(dispatch.Dispatch, []dispatch.Event) { n.courier.OnCommit() })
		n.Go(func() { n.send(n.ctx) })
		return nil
	}
	i.commits.subscribe(n.hub.Publish)
	i.commits.subscribe(func(dispatch.Dispatch, []dispatch.Event) { n.hub.WakeRelays() })
	if !relays {
		return nil
	}
	locker := lock.New(i.locks.strategy, lock.Options{Instance: instanceName(), Log: i.log, Metrics: i.locks.metrics})
	n.Go(func() {
		defer locker.Close()
		lease := cmp.Or(i.config.LockLease, relayLease)
		r := &leaderRelay{leader: locker.Leader(relayName, relayWait, lease), send: n.send, up: i.probe.Up, log: i.log}
		r.run(n.ctx)
	})
	return nil
}

// relaysOwn reports whether the instance sends what it commits, which it leases when it writes it.
func (i *instance) relaysOwn() bool { return i.config.Has(config.RoleRelay) && !i.config.Push.Leader }

// openRelay makes the relay and the courier, which lease as owner. A webhook is leased no shorter than an attempt takes.
func (i *instance) openRelay(ctx context.Context, n *notifier, owner string) (err error) {
	if i.config.PrivateWebhooks {
		i.log.Warn("webhooks may be sent by http, and to private addresses; in production leave FIRSTTAP_WEBHOOK_ALLOW_PRIVATE unset")
	}
	if n.sender, err = i.openSender(ctx); err != nil {
		return err
	}
	n.relay = notify.NewRelay(notify.RelayOptions{
		Outbox: i.store.Outbox(pushes.Options{Owner: owner, LeaseTerm: i.pushLease(), TopicThreshold: pushes.LargeAudience}),
		Poll:   i.store.Poll, Notifications: i.store.Notifications,
		Topics: i.store.TopicsOf(owner, i.pushLease()), Devices: i.store.Devices, Sender: n.sender,
		Publish: n.hub.Publish, WakeOthers: n.hub.WakeRelays, Log: i.log, Metrics: i.telemetry,
		MaxAttempts: i.config.Push.Attempts, AttemptTimeout: i.config.Timeouts.Push, DrainTimeout: i.config.Timeouts.Stop,
	})
	n.courier = webhooks.NewCourier(webhooks.CourierOptions{
		Outbox: i.store.WebhookOutbox(owner, max(i.pushLease(), defaultPushLease)),
		Client: n.client, Body: handler.WebhookBody, Log: i.log, Metrics: i.telemetry, DrainTimeout: i.config.Timeouts.Stop,
	})
	return nil
}

// wake makes the relay and the courier look at what is due now.
func (n *notifier) wake() {
	n.relay.Wake()
	n.courier.Wake()
}

// send sends pushes and webhooks until ctx ends.
func (n *notifier) send(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { n.courier.Run(ctx) })
	n.relay.Run(ctx)
	running.Wait()
}

func (i *instance) pushLease() time.Duration {
	return cmp.Or(i.config.Timeouts.PushLease, defaultPushLease)
}

func (i *instance) openSender(ctx context.Context) (sender, error) {
	c := i.config.Push
	if !c.FCM {
		return notify.NewLogSender(i.log), nil
	}
	return fcm.New(ctx, fcm.Options{
		Project: c.Project, CredentialsFile: c.Credentials, Endpoint: c.Endpoint, Zone: c.Zone,
		Timeout: i.config.Timeouts.Push, WrapTransport: i.telemetry.WrapTransport,
	})
}

// close ends the relay, the courier and the hub, and then the connections.
func (n *notifier) close() error {
	err := n.end()
	if n.sender != nil {
		n.sender.Close()
	}
	n.client.Close()
	return err
}
