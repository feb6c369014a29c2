package app

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/config"
)

// pipes is a listener of connections within this process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client is cut off that takes longer than it may: for its headers, for its request, to read the answer, to send another request.
func TestSlowClientsAreCutOff(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		sends string // at once
		reads bool   // the answer
		after time.Duration
	}{
		"no headers":        {"", true, 5 * time.Second},
		"half of a header":  {"GET / HTTP/1.1\r\nHost: x\r\nX-", true, 5 * time.Second},
		"half of a body":    {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf", true, 15 * time.Second},
		"an unread answer":  {get, false, 30 * time.Second},
		"no second request": {get, true, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						_, _ = w.Write([]byte("done"))
					}
				})
				server := newServer(config.Config{}, read, slog.New(slog.DiscardHandler))
				listener := &pipes{make(chan net.Conn), make(chan struct{})}
				ended := make(chan error)
				go func() { ended <- server.Serve(listener) }()
				client, conn := net.Pipe()
				listener.conns <- conn
				began := time.Now()
				if _, err := io.WriteString(client, c.sends); err != nil {
					t.Fatal(err)
				}
				if c.reads {
					if answer, err := http.ReadResponse(bufio.NewReader(client), nil); err == nil {
						if _, err := io.Copy(io.Discard, answer.Body); err != nil && answer.StatusCode == http.StatusOK {
							t.Error(err)
						}
						answer.Body.Close()
					}
					_, _ = io.Copy(io.Discard, client)
				} else {
					time.Sleep(time.Hour)
					if _, err := client.Read(make([]byte, 1)); err == nil {
						t.Error("an hour later it is answered")
					}
				}
				if took := time.Since(began); c.reads && took != c.after {
					t.Errorf("cut off after %s, want %s", took, c.after)
				}
				client.Close()
				if err := server.Close(); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}
