package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"firsttap/lock"
)

const (
	// relayWait and relayLease choose the one relay of FIRSTTAP_RELAY=leader.
	relayWait  = time.Second
	relayLease = 10 * time.Second
	relayPause = 100 * time.Millisecond
	relayName  = "relay"
	// relayPatience is how long an instance goes on without its database, before it stops sending, and gives the lead to one that may reach
	// it.
	relayPatience = 3 * time.Second
)

// leaderRelay sends on one instance of many: on the leader, and on every instance that can't find out which one leads. Two relays send no
// push twice, as each push is leased before it is sent; without a relay, no push would be sent.
type leaderRelay struct {
	leader *lock.Leader
	send   func(context.Context) // sends until its context ends
	up     func() bool           // whether the database takes writes
	log    *slog.Logger

	stop  func()    // ends the sending, and waits until it has ended; nil while nothing is sent
	blind bool      // this instance can't find out which one leads
	upAt  time.Time // when the database was last found to take writes
}

// run sends, whenever this instance may, until ctx ends. Then it gives up the lead.
func (r *leaderRelay) run(ctx context.Context) {
	defer r.resign(ctx)
	for ctx.Err() == nil {
		if !r.fit() { // it could lease no push
			r.stopSending()
			pause(ctx, relayPause)
			continue
		}
		err := r.leader.Campaign(ctx, func(leading context.Context) error { return r.lead(ctx, leading) })
		switch {
		case ctx.Err() != nil:
		case err == nil:
			r.resign(ctx)
		case errors.Is(err, lock.ErrHeld):
			r.setBlind(false)
			r.stopSending()
		case errors.Is(err, lock.ErrLost):
			r.log.Warn("this instance has lost the lead; it relays until it knows that another instance leads", "error", err)
			pause(ctx, relayPause)
		default:
			if r.startSending(ctx); !r.blind {
				r.log.Warn("the leader can't be determined; this instance relays until it can", "error", err)
			}
			r.setBlind(true)
			pause(ctx, relayPause)
		}
	}
}

// lead sends until the lead is lost, or until the database has been away for relayPatience.
func (r *leaderRelay) lead(ctx, leading context.Context) error {
	r.setBlind(false)
	r.startSending(ctx) // beyond the lead: a moment without any relay would delay pushes
	r.log.Info("this instance leads: it sends pushes and webhooks until it loses the lead")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-leading.Done():
			return nil
		case <-tick.C:
		}
		if !r.fit() {
			r.log.Warn("this instance gives up the lead, as its database takes no writes; an instance that reaches the database will lead")
			return nil
		}
	}
}

// fit reports whether the database takes writes, or did so within relayPatience.
func (r *leaderRelay) fit() bool {
	if r.up() {
		r.upAt = time.Now()
	}
	return time.Since(r.upAt) < relayPatience
}

func (r *leaderRelay) setBlind(blind bool) {
	if r.blind && !blind {
		r.log.Info("the leader can be determined again")
	}
	r.blind = blind
}

func (r *leaderRelay) startSending(ctx context.Context) {
	if r.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.send(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
}

func (r *leaderRelay) stopSending() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// resign releases the lead, if this instance has it, and stops the sending: attempts under way may take a while to end. The lock logs an
// error.
func (r *leaderRelay) resign(ctx context.Context) {
	_ = r.leader.Resign(context.WithoutCancel(ctx))
	r.stopSending()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
