package locks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/internal/servertest"
)

var runs = flag.Int("runs", 20, "how often each way is cut off for the scoreboard")

const (
	pollEvery = 10 * time.Millisecond
	// patience bounds a run. No way needs that long.
	patience = time.Minute
)

// run is one holder that was cut off, and its successor.
type run struct {
	rivalIn time.Duration // from the cut until the rival had the name
	told    time.Duration // from the cut until the context of the holder's work ended
	err     error
}

// overlap is how long the holder's work went on beside the rival; 0 or less if it had stopped before.
func (r run) overlap() time.Duration { return r.told - r.rivalIn }

// TestScoreboard holds a name through a proxy in each way, makes the proxy swallow everything meanwhile, and polls the
// server directly for the name. It fails if one of FirstTap's ways has two holders at once.
func TestScoreboard(t *testing.T) {
	s := startSite(t)
	out := newTable(fmt.Sprintf("A holder all of whose connections go silent, TTL %s, %d runs each; the rival asks every %s. "+
		"Seconds, median (least–most).", ttl, *runs, pollEvery),
		"way", "two at once", "overlap", "work told before the rival", "rival in, after the cut", "how")
	for _, w := range slices.Concat(libraries, lockers) {
		t.Run(w.name, func(t *testing.T) { report(t, out, w, cutOff(t, w, s)) })
	}
	out.print()
}

// cutOff performs all runs of a way at the same time. The cuts are spread evenly over the time between two renewals.
func cutOff(t *testing.T, w way, s site) []run {
	found := make([]run, *runs)
	var work sync.WaitGroup
	for i := range found {
		var proxies []*servertest.Proxy
		holder := w.open(t, s.via(func(addr string) string {
			p := servertest.StartProxy(t, addr)
			proxies = append(proxies, p)
			return p.Addr()
		}))
		blackhole := func(on bool) {
			for _, p := range proxies {
				p.Blackhole(on)
			}
		}
		rival := w.open(t, s)
		cut := ttl/2 + ttl/3*time.Duration(i)/time.Duration(len(found))
		name := fmt.Sprintf("%s-%d", w.key(), i)
		work.Go(func() { found[i] = cutOne(t.Context(), holder, rival, name, cut, blackhole) })
	}
	work.Wait()
	return found
}

func cutOne(ctx context.Context, holder, rival user, name string, after time.Duration, blackhole func(bool)) (r run) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	first, err := holder(ctx, name)
	if err != nil {
		return run{err: err}
	}
	work := first.keep(ctx)
	select {
	case <-time.After(after):
	case <-work.Done():
		return run{err: fmt.Errorf("lost before the cut: %w", context.Cause(work))}
	}
	blackhole(true)
	cut := time.Now()
	told := make(chan time.Duration, 1)
	go func() {
		select {
		case <-work.Done():
		case <-ctx.Done():
		}
		told <- time.Since(cut)
	}()
	err = poll(ctx, rival, name)
	r.rivalIn = time.Since(cut)
	r.told = <-told
	blackhole(false)
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("the work was never told"))
	}
	r.err = err
	_ = first.release(ctx) // it lost the name long ago, and the rival's expires
	return r
}

// poll asks until it has the name.
func poll(ctx context.Context, rival user, name string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		_, err := rival(ctx, name)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func report(t *testing.T, out *table, w way, found []run) {
	var overlaps, before, in []float64
	both := 0
	for i, r := range found {
		if r.err != nil {
			t.Fatalf("run %d: %v", i, r.err)
		}
		overlap := r.overlap().Seconds()
		if in = append(in, r.rivalIn.Seconds()); overlap > 0 {
			both++
		}
		overlaps, before = append(overlaps, max(overlap, 0)), append(before, -overlap)
	}
	told := "-"
	if both < len(found) {
		told = spread(before, 2)
	}
	out.row(w.name, fmt.Sprintf("%d of %d", both, len(found)), spread(overlaps, 2), told, spread(in, 2), w.note)
	if w.ours && both > 0 {
		t.Errorf("%s: two holders at once in %d runs of %d", w.name, both, len(found))
	}
}
