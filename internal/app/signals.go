package app

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errTerminated is the cause of a context that SIGTERM ended: the instance is being replaced, and a load balancer needs time
// to notice before the instance stops taking requests.
var errTerminated = errors.New("stopped by SIGTERM")

// repeatTime is how long after a signal a second one counts as the same: timeout(1) and a closing terminal send two.
const repeatTime = 500 * time.Millisecond

// SignalContext returns a context that SIGINT, SIGTERM or SIGHUP ends; after SIGTERM its cause is errTerminated. A second
// signal, more than half a second later, kills the process at once.
func SignalContext(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-stopped:
			return
		case s := <-signals:
			if s == syscall.SIGTERM {
				cancel(errTerminated)
			} else {
				cancel(context.Canceled)
			}
		}
		select {
		case <-stopped:
		case <-time.After(repeatTime):
			signal.Stop(signals) // the next signal has its default effect
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		close(stopped)
		<-done
		signal.Stop(signals)
	}
}
