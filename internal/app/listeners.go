package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"firsttap/handler"
	"firsttap/internal/config"
	"firsttap/notify/stream"
)

const (
	// A client has this long to send the headers, to send the whole request, to read the answer, and to begin its next request, for which
	// it has longer than any common load balancer: whoever keeps a connection longer than the other side may send a request on one that
	// was just closed, and a balancer answers 502. The
	// number of connections is not bounded: an attacker who used up such a bound would keep every driver out, while an idle or slow
	// connection costs a few kilobytes until its timeout. The reverse proxy, which sees each client's address, bounds the connections
	// of one address.
	headersTimeout = 5 * time.Second
	requestTimeout = 15 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 620 * time.Second
	// maxHeaders is 4 KiB less than the limit that holds: net/http adds as much.
	maxHeaders = 12 << 10
)

// listeners are the API's listener and, unless its address is empty, the operations' listener.
type listeners struct {
	config   config.Config
	log      *slog.Logger
	addr     net.Addr
	servers  []*http.Server
	streams  *stream.Hub // nil until endStreams
	api, ops switchedHandler
	draining atomic.Bool // GET /readyz answers 503
	failed   chan error
	running  sync.WaitGroup
}

// switchedHandler is a handler that is replaced by another one while it serves.
type switchedHandler struct{ current atomic.Pointer[http.Handler] }

func (s *switchedHandler) set(h http.Handler) { s.current.Store(&h) }

// ServeHTTP implements http.Handler.
func (s *switchedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}

// listen starts the listeners. Until serve is called they answer that the instance is starting.
func listen(ctx context.Context, c config.Config, log *slog.Logger) (*listeners, error) {
	l := &listeners{config: c, log: log}
	starting := handler.NewMigrating(log, c.AllowedOrigins)
	l.api.set(starting)
	l.ops.set(starting)
	servers := []*http.Server{newServer(c.Addr, &l.api, log)}
	if c.OpsAddr != "" {
		servers = append(servers, &http.Server{Addr: c.OpsAddr, Handler: &l.ops, ReadHeaderTimeout: headersTimeout})
	}
	l.failed = make(chan error, len(servers))
	for _, s := range servers {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Addr)
		if err != nil {
			return nil, errors.Join(
				fmt.Errorf("%w (FIRSTTAP_ADDR is the API's address, FIRSTTAP_OPS_ADDR the operations', empty for none)", err), l.close(),
			)
		}
		if s == servers[0] {
			l.addr = listener.Addr()
		}
		l.servers = append(l.servers, s)
		l.running.Go(func() {
			if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				l.failed <- err
			}
		})
	}
	return l, nil
}

// newServer returns the API's server. Live streams set write deadlines of their own.
func newServer(addr string, api http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr: addr, Handler: api, MaxHeaderBytes: maxHeaders,
		ReadHeaderTimeout: headersTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// serve calls ready, and answers with api and ops until ctx ends and the instance has drained, or until a listener fails.
func (l *listeners) serve(ctx context.Context, api, ops http.Handler, ready func()) error {
	l.api.set(api)
	l.ops.set(ops)
	ready()
	select {
	case err := <-l.failed:
		return err
	case <-ctx.Done():
		return l.drain(ctx)
	}
}

// drain makes GET /readyz answer 503. After a SIGTERM it goes on serving for config.Drain, so that a load balancer can notice.
func (l *listeners) drain(ctx context.Context) error {
	l.draining.Store(true)
	if !errors.Is(context.Cause(ctx), errTerminated) || l.config.Drain == 0 {
		return nil
	}
	l.log.Info("draining; GET /readyz answers 503 while requests are still served", "for", l.config.Drain.String())
	end := time.NewTimer(l.config.Drain)
	defer end.Stop()
	select {
	case err := <-l.failed:
		return err
	case <-end.C:
		return nil
	}
}

// endStreams makes close end the streams of hub, which would not end by themselves: they get their last messages when the API takes no
// new requests.
func (l *listeners) endStreams(hub *stream.Hub) {
	l.streams = hub
	l.servers[0].RegisterOnShutdown(hub.Close)
}

// close closes the listeners and waits for the requests under way and the live streams, for the stop time at most. The second call does
// nothing.
func (l *listeners) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(l.config.Timeouts.Stop, defaultStopTime))
	defer cancel()
	for _, s := range l.servers {
		if err := s.Shutdown(ctx); err != nil {
			l.log.Warn("requests did not finish in time and were cut off", "address", s.Addr, "error", err)
			s.Close()
		}
	}
	if l.streams != nil && len(l.servers) > 0 {
		if err := l.streams.Shutdown(ctx); err != nil {
			l.log.Warn("live streams did not end in time and were cut off", "error", err)
		}
	}
	l.running.Wait()
	l.servers = nil
	return nil
}

// operations serves metrics and profiles, to everyone who can reach FIRSTTAP_OPS_ADDR.
func operations(metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return mux
}
