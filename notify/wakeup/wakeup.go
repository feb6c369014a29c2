// Package wakeup lets one goroutine wake another without blocking.
package wakeup

import "context"

// Signal wakes the goroutine that receives from it. Calls of Set that nobody has received yet count as one.
type Signal chan struct{}

// New returns a signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set sets the signal. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait waits until the signal is set or ctx ends.
func (s Signal) Wait(ctx context.Context) {
	select {
	case <-s:
	case <-ctx.Done():
	}
}
