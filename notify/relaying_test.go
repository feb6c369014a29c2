package notify_test

import (
	"net/http"
	"time"

	"firsttap/repository/pushes"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcm"
	"firsttap/repository"
)

// relaying is one instance's relay.
type relaying struct {
	*notify.Relay
	wire *wire
	stop func()
}

// relay runs a relay, as edit has it, until the test ends or it is stopped. From now on what the office commits is committed
// by the relay's instance.
func (o *office) relay(edit func(*notify.RelayOptions, *pushes.Options)) *relaying {
	o.t.Helper()
	r, store := o.relayBeside(edit)
	o.store = store
	return r
}

// relayBeside runs the relay of an instance that commits nothing, as relay does. In a bubble it waits as in production, but for
// its polls, and in real time less.
func (o *office) relayBeside(edit func(*notify.RelayOptions, *pushes.Options)) (*relaying, *repository.Store) {
	o.t.Helper()
	owner := dispatch.NewUniqueID("ins_", time.Now())
	box := pushes.Options{Owner: owner, LeaseTerm: 30 * time.Second}
	options := notify.RelayOptions{Sender: o.sender()}
	if o.bubble {
		options.PollInterval = time.Duration(testkit.Scale(4, 1)) * time.Second // most of what a minute of a bubble costs
	} else {
		options.PollInterval, options.RetryDelay, options.FailurePause = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	}
	if edit != nil {
		edit(&options, &box)
	}
	r := &relaying{wire: &wire{sender: options.Sender, bubble: o.bubble, slow: o.slow}}
	store := o.open(repository.Options{
		OutboxOwner: owner, OutboxLease: box.LeaseTerm, Observer: o.observer,
		OnCommit: func(d dispatch.Dispatch, events []dispatch.Event) { r.OnCommit(d, events) },
	})
	r.wire.Outbox, r.wire.Topics, r.wire.Devices = store.Outbox(box), store.TopicsOf(box.Owner, box.LeaseTerm), store.Devices
	r.wire.Poll, r.wire.Notifications = store.Poll, store.Notifications
	options.Outbox, options.Topics, options.Devices, options.Sender = r.wire, r.wire, r.wire, wiredSender{r.wire}
	options.Poll, options.Notifications = r.wire, r.wire
	r.Relay = notify.NewRelay(options)
	r.stop = testkit.Run(o.t, r.Run)
	return r, store
}

// sender sends to the office's push service, without a connection.
func (o *office) sender() *fcm.Sender {
	o.t.Helper()
	s, err := fcm.New(o.t.Context(), fcm.Options{
		Project: "demo", Endpoint: "http://fcm.test/v1", Timeout: o.timeout,
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return o.fcm },
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(s.Close)
	return s
}
