//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package app

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// pipes is a net.Listener whose connections are in memory: the clock of a synctest bubble stands still while a goroutine waits for the
// network. dial makes a connection and returns the client's end; the server gets the other end from Accept.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.waiting:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.waiting <- server
	return client
}

// serveInMemory serves with the time limits that apply when no setting changes them. It must run in a bubble.
func serveInMemory(answer http.HandlerFunc) (p *pipes, stop func() error) {
	s := newServer("", answer, slog.New(slog.DiscardHandler))
	p = &pipes{make(chan net.Conn), make(chan struct{})}
	go s.Serve(p)
	return p, s.Close
}

// connectionEnds sends head to the API's server at once, and then a byte of rest every second. It returns when the server closed
// the connection, and what it answered.
func connectionEnds(t *testing.T, head, rest string) (after time.Duration, answer string) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		p, stop := serveInMemory(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		defer stop()
		began, conn := time.Now(), p.dial()
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := io.WriteString(conn, head)
			for ; rest != "" && err == nil; rest = rest[1:] {
				time.Sleep(time.Second)
				_, err = io.WriteString(conn, rest[:1])
			}
		})
		said, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("the connection ended with %v", err)
		}
		after, answer = time.Since(began), string(said)
		conn.Close()
		writing.Wait()
	})
	return after, answer
}

// TestConnectionsEnd when a client is slower than docs/callers.md allows, to the second.
func TestConnectionsEnd(t *testing.T) {
	const promise = "A client has 5 s for the headers, 15 s for the whole request, and 620 s between requests; then the connection is closed."
	docs, err := os.ReadFile("../../docs/callers.md")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(docs)), " "), promise) {
		t.Fatalf("docs/callers.md does not promise this any more, %v: %s", err, promise)
	}
	const request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n"
	const chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	const endless = "X: an endless header"
	for name, c := range map[string]struct {
		head, rest string
		ends       time.Duration
		answer     string // "" for none
	}{
		"no headers come":         {"", "", 5 * time.Second, ""},
		"the first line is slow":  {"P", "OST / HTTP/1.1", 5 * time.Second, "400"},
		"the headers do not end":  {request, endless, 5 * time.Second, ""},
		"no body comes":           {request + "\r\n", "", 15 * time.Second, "400"},
		"the body comes too late": {request + "\r\nx", "1234567890", 15 * time.Second, "400"},
		"the chunks do not end":   {chunked, strings.Repeat("1\r\n \r\n", 5), 15 * time.Second, "400"},
		"the body takes 14 s":     {request + "\r\n", "12345678901234", (14 + 620) * time.Second, "200"},
		"no other request comes":  {request + "\r\n12345678901234", "", 620 * time.Second, "200"},
	} {
		t.Run(name, func(t *testing.T) {
			after, answer := connectionEnds(t, c.head, c.rest)
			if after != c.ends {
				t.Errorf("the connection ended after %s, want %s", after, c.ends)
			}
			statuses := regexp.MustCompile(`(?m)^HTTP/1.1 (\d+)`).FindAllStringSubmatch(answer, -1)
			if c.answer == "" && answer != "" || c.answer != "" && (len(statuses) != 1 || statuses[0][1] != c.answer) {
				t.Errorf("answered with %q, want %q", answer, c.answer)
			}
		})
	}
}

// TestAnswerIsNotTaken: a client that does not read its answer loses the connection after 30 s.
func TestAnswerIsNotTaken(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		gaveUp := make(chan error)
		p, stop := serveInMemory(func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 1<<20))
			gaveUp <- err
		})
		defer stop()
		began, conn := time.Now(), p.dial()
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err, after := <-gaveUp, time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || after != 30*time.Second {
			t.Errorf("the answer ended after %s with %v", after, err)
		}
	})
}
