package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errTerminated is the cause of a context that a SIGTERM ended: somebody replaces this instance, and whoever sends it
// requests is to notice before it stops taking them.
var errTerminated = errors.New("told to end by SIGTERM")

// untilTold returns a context that a SIGINT or a SIGTERM ends, the latter with errTerminated as its cause. A second
// signal ends the process at once, whatever it is in the middle of.
func untilTold(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			return
		case s := <-told:
			signal.Stop(told) // what a signal does by itself comes next
			if s == syscall.SIGTERM {
				cancel(errTerminated)
			} else {
				cancel(context.Canceled)
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
		signal.Stop(told)
	}
}
