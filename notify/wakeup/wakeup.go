// Package wakeup lets one goroutine wake another without blocking.
package wakeup

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
