package app

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errTerminated is the cause of a context that a SIGTERM ended: somebody replaces this instance, and whoever sends it
// requests is to notice before it stops taking them.
var errTerminated = errors.New("told to end by SIGTERM")

// sameWish is how soon after a signal another one is the same wish: timeout(1) and a terminal that closes say it twice.
const sameWish = 500 * time.Millisecond

// SignalContext returns a context that a SIGINT, a SIGTERM or the end of the terminal ends, SIGTERM with errTerminated as its
// cause. A second signal, later than sameWish, ends the process at once, whatever it is in the middle of.
func SignalContext(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(told, syscall.SIGHUP)
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-over:
			return
		case s := <-told:
			if s == syscall.SIGTERM {
				cancel(errTerminated)
			} else {
				cancel(context.Canceled)
			}
		}
		select {
		case <-over:
		case <-time.After(sameWish):
			signal.Stop(told) // what a signal does by itself comes next
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		close(over)
		<-done
		signal.Stop(told)
	}
}
