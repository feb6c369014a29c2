package fcmtest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server is FCM and the phones behind it. It is an http.Handler, safe for concurrent use.
type Server struct {
	url string

	changing sync.Mutex // held to change the settings, not to read them
	settings atomic.Pointer[settings]

	ledger ledger
	fleet  fleet
	topics topics

	closing  chan struct{}
	ending   sync.Once
	handlers atomic.Int64
	stop     func() // ends the listener and waits for its goroutines; nil without a listener
}

// settings are replaced as a whole, never modified.
type settings struct {
	knobs  Knobs
	poison [][]byte
	hook   func(Request)
}

// New returns a healthy server without a listener. Serve it as an http.Handler, and Close it before the listener.
func New() *Server {
	s := &Server{closing: make(chan struct{})}
	s.settings.Store(&settings{})
	s.ledger.init()
	s.fleet.init()
	s.topics.init(&s.fleet)
	return s
}

// Listen serves on a loopback port of its own until Close.
func Listen() (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fcmtest: %w", err)
	}
	s := New()
	s.url = "http://" + listener.Addr().String()
	var running sync.WaitGroup
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
		// A connection is StateNew before its goroutine starts, and StateClosed is the last thing that the goroutine sets.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				running.Add(1)
			case http.StateClosed:
				running.Done()
			}
		},
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	s.stop = func() {
		_ = server.Close()
		<-served
		running.Wait()
	}
	return s, nil
}

// URL returns the server's base URL without a trailing slash; the endpoint for a sender is URL()+"/v1". It is "" for a
// server without a listener.
func (s *Server) URL() string { return s.url }

// Close ends the server and all requests that hang or wait in it. With a listener it returns when all its goroutines have
// ended; a hook that blocks delays it. The counts stay available.
func (s *Server) Close() {
	s.ending.Do(func() {
		close(s.closing)
		if s.stop != nil {
			s.stop()
		}
	})
}

// Set changes the knobs for requests that arrive from now on, and restarts the count of the shares. It panics if the new
// knobs are not valid.
func (s *Server) Set(change func(*Knobs)) {
	s.update(func(set *settings) {
		change(&set.knobs)
		if err := set.knobs.Validate(); err != nil {
			panic("fcmtest: " + err.Error())
		}
		s.ledger.restartShares()
	})
}

// Knobs returns the current knobs.
func (s *Server) Knobs() Knobs { return s.settings.Load().knobs }

// OnSend makes the server call hook for every messages:send request, after its decision and before the latency; nil ends
// that. Calls are concurrent, and an answer waits for its call.
func (s *Server) OnSend(hook func(Request)) {
	s.update(func(set *settings) { set.hook = hook })
}

// Poison makes the server refuse messages whose body contains match, as INVALID_ARGUMENT.
func (s *Server) Poison(match string) {
	s.update(func(set *settings) {
		if match != "" {
			set.poison = append(set.poison[:len(set.poison):len(set.poison)], []byte(match))
		}
	})
}

// Cure ends the effect of every Poison.
func (s *Server) Cure() { s.update(func(set *settings) { set.poison = nil }) }

func (s *Server) update(change func(*settings)) {
	s.changing.Lock()
	defer s.changing.Unlock()
	next := *s.settings.Load()
	change(&next)
	s.settings.Store(&next)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.ledger.enter(s.handlers.Add(1))
	defer s.handlers.Add(-1)
	if project, ok := sendPath(r.URL.Path); ok {
		if allowPost(w, r) {
			s.send(w, r, project)
		}
		return
	}
	if operation, ok := strings.CutPrefix(r.URL.Path, "/iid/v1:"); ok && (operation == batchAdd || operation == batchRemove) {
		if allowPost(w, r) {
			s.batch(w, r, operation)
		}
		return
	}
	http.NotFound(w, r)
}

func allowPost(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodPost {
		return true
	}
	w.Header().Set("Allow", http.MethodPost)
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

// sendPath returns the project of /v1/projects/{project}/messages:send.
func sendPath(path string) (project string, ok bool) {
	project, ok = strings.CutPrefix(path, "/v1/projects/")
	if !ok {
		return "", false
	}
	project, ok = strings.CutSuffix(project, "/messages:send")
	return project, ok && project != "" && !strings.Contains(project, "/")
}

// pause waits, and returns false once the client or the server has gone. A negative wait has no end.
func (s *Server) pause(r *http.Request, wait time.Duration) bool {
	if wait == 0 {
		select {
		case <-s.closing:
			return false
		default:
			return true
		}
	}
	var elapsed <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-elapsed:
		return true
	case <-r.Context().Done():
	case <-s.closing:
	}
	return false
}

// readBody returns the body, or long if it exceeds limit.
func readBody(r *http.Request, limit int64) (body []byte, long bool, err error) {
	if r.ContentLength > limit {
		return nil, true, nil
	}
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
		return body, false, err
	}
	body, err = io.ReadAll(io.LimitReader(r.Body, limit+1))
	if int64(len(body)) > limit {
		return nil, true, err
	}
	return body, false, err
}
