package firebase

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const maxAnswer = 1 << 20 // bytes

// google has the connections to Google, and the fetches that outlast the callers who started them.
type google struct {
	fetches sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	conns   *http.Transport
	now     func() time.Time
}

func newGoogle(ctx context.Context, now func() time.Time) *google {
	g := &google{conns: http.DefaultTransport.(*http.Transport).Clone(), now: now}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return g
}

func (g *google) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: g.conns}
}

func (g *google) close() {
	g.cancel()
	g.fetches.Wait()
	g.conns.CloseIdleConnections()
}

// fetched is a value that Google has. Callers share a fetch, and the last value stays while fetches fail.
type fetched[T any] struct {
	mu      sync.Mutex
	value   T
	at      time.Time     // when the fetch of the value began; zero before the first
	endedAt time.Time     // the end of the last fetch
	err     error         // of the last fetch
	pending chan struct{} // closed at the end of the fetch under way; nil without one
}

// start starts a fetch, unless one is under way. It needs mu.
func (f *fetched[T]) start(g *google, fetch func(context.Context) (T, error)) {
	if f.pending != nil {
		return
	}
	f.pending = make(chan struct{})
	began := g.now()
	g.fetches.Go(func() {
		value, err := fetch(g.ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.endedAt, f.err = g.now(), err; err == nil {
			f.value, f.at = value, began
		}
		close(f.pending)
		f.pending = nil
	})
}

// newCounter counts the requests of one kind by their result.
func newCounter(o Options, name, help string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	if o.Metrics != nil {
		o.Metrics.MustRegister(c)
	}
	return c
}

func count(c *prometheus.CounterVec, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	c.WithLabelValues(result).Inc()
}

// statusError is an answer without what was asked for.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the answer is %d %s", int(e), http.StatusText(int(e)))
}

// send sends the request and decodes the answer into v. A statusError for another status than 200.
func send(client *http.Client, req *http.Request, v any) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
		return fmt.Errorf("the answer is not the JSON that was expected: %w", err)
	}
	return nil
}
