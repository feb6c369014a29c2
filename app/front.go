package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"firsttap/config"
	"firsttap/handler"
)

// entrance is a handler whose work is done by another one, which may be exchanged.
type entrance struct{ inside atomic.Pointer[http.Handler] }

func (e *entrance) lead(to http.Handler) { e.inside.Store(&to) }

// ServeHTTP implements http.Handler.
func (e *entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*e.inside.Load()).ServeHTTP(w, r)
}

// front is the listeners: the API's and, where wanted, the operations'.
type front struct {
	config  config.Config
	log     *slog.Logger
	addr    net.Addr
	servers []*http.Server
	api     entrance
	ops     entrance
	failed  chan error
	running sync.WaitGroup
}

// openFront listens. Until serve says what with, the answer is that the instance starts.
func openFront(ctx context.Context, c config.Config, log *slog.Logger) (*front, error) {
	f := &front{config: c, log: log}
	starting := handler.Starting(log)
	f.api.lead(starting)
	f.ops.lead(starting)
	servers := []*http.Server{newServer(c, &f.api, log)}
	if c.OpsAddr != "" {
		servers = append(servers, &http.Server{Addr: c.OpsAddr, Handler: &f.ops, ReadHeaderTimeout: usualHeaders})
	}
	f.failed = make(chan error, len(servers))
	for _, s := range servers {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Addr)
		if err != nil {
			f.close()
			return nil, fmt.Errorf("%w (FIRSTTAP_ADDR is the API's address, FIRSTTAP_OPS_ADDR the operations', empty for none)", err)
		}
		if s == servers[0] {
			f.addr = l.Addr()
		}
		f.servers = append(f.servers, s)
		f.running.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				f.failed <- err
			}
		})
	}
	return f, nil
}

// serve answers with the API, and the operations, until ctx has ended and drain is over, or a listener fails. It calls
// stopping when there are to be no new requests.
func (f *front) serve(ctx context.Context, api, ops http.Handler, drain *draining, stopping func(), stdout io.Writer) error {
	defer f.close()
	f.servers[0].RegisterOnShutdown(stopping)
	f.api.lead(api)
	f.ops.lead(ops)
	announce(f.config, f.addr, stdout)
	select {
	case err := <-f.failed:
		return err
	case <-ctx.Done():
	}
	return drain.wait(ctx, f.failed)
}

// close ends the requests under way and the listeners; the second time it does nothing.
func (f *front) close() {
	shutDown(f.servers, f.log)
	f.running.Wait()
	f.servers = nil
}
