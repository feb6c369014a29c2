package testkit

import (
	"runtime"
	"testing"
)

// While a bubble runs with the race detector, the program has one processor, also after another bubble has ended, and then as many as
// before.
func TestBubblesWithTheRaceDetector(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	want := 2
	if raced {
		want = 1
	}
	entered, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-entered
		Bubble(t, func(t *testing.T) { Equal(t, "processors in two bubbles", want, runtime.GOMAXPROCS(0)) })
	}()
	Bubble(t, func(t *testing.T) {
		close(entered)
		<-ended
		Equal(t, "processors after another bubble", want, runtime.GOMAXPROCS(0))
	})
	Equal(t, "processors without a bubble", 2, runtime.GOMAXPROCS(0))
}
