//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// onConnection serves an admin's stream on one end of a connection in memory, where a write waits for its reader, and returns the other
// end. ended is closed when the stream has ended.
func onConnection(t *testing.T, h *Hub, check func(context.Context) error) (client net.Conn, ended chan struct{}) {
	t.Helper()
	s, err := h.OpenAdmin(t.Context(), "key_1", "")
	if err != nil {
		t.Fatal(err)
	}
	c := serveOnPipe(s, check)
	return c.Conn, c.ended
}

// piped is the client's end of a stream's connection.
type piped struct {
	net.Conn
	closed chan time.Time // when the service has closed its end
	ended  chan struct{}  // closed when the stream has ended
}

func serveOnPipe(s *Stream, check func(context.Context) error) piped {
	client, server := net.Pipe()
	c := piped{client, make(chan time.Time, 1), make(chan struct{})}
	s.ServeConnection(Connection{
		Conn: &noticed{Conn: server, closed: c.closed}, Chunked: true, WriteTimeout: 10 * time.Second, Check: check,
		OnEnd: func() { close(c.ended) },
	})
	return c
}

// noticed says when it is closed.
type noticed struct {
	net.Conn
	once   sync.Once
	closed chan time.Time
}

func (n *noticed) Close() error {
	n.once.Do(func() { n.closed <- time.Now() })
	return n.Conn.Close()
}

func allow(context.Context) error { return nil }

// TestShutdownWaits until the streams have had their last words; no longer than its context lasts, so that a client that reads nothing does
// not hold it up.
func TestShutdownWaits(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool
		want  error
		takes time.Duration
	}{
		"for a client that reads":   {true, nil, 0},
		"not for one that does not": {false, context.DeadlineExceeded, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				h, stop := startHub(t, Options{})
				defer stop()
				client, ended := onConnection(t, h, allow)
				var reading sync.WaitGroup
				defer reading.Wait()
				var said []byte
				if c.reads {
					reading.Go(func() { said, _ = io.ReadAll(client) })
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				began := time.Now()
				if err := h.Shutdown(ctx); !errors.Is(err, c.want) || time.Since(began) != c.takes {
					t.Errorf("it returned %v after %v", err, time.Since(began))
				}
				<-ended
				if reading.Wait(); c.reads && !strings.HasSuffix(string(said), "event: reconnect\ndata: {}\n\n\r\n0\r\n\r\n") {
					t.Errorf("the client got %q", said)
				}
			})
		})
	}
}

// TestLateStream: a stream that was opened before the end of a stop, and begins after it, does not hold it up.
func TestLateStream(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, stop := startHub(t, Options{})
		defer stop()
		s, err := h.OpenAdmin(t.Context(), "key_1", "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var stopping sync.WaitGroup
		stopping.Go(func() { _ = h.Shutdown(ctx) })
		synctest.Wait()
		began := time.Now()
		<-serveOnPipe(s, allow).ended
		stopping.Wait()
		testkit.Equal(t, "it took", 0, time.Since(began))
	})
}

// TestHangingUp ends the stream and its connection at once, also while the stream waits for the database.
func TestHangingUp(t *testing.T) {
	for name, waits := range map[string]bool{"an idle stream": false, "one that loads its driver": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				h, stop := startHub(t, Options{Heartbeat: time.Hour})
				defer stop()
				var opened atomic.Bool
				s, err := h.OpenDriver(t.Context(), kim().ID, "1-1", func(ctx context.Context) (dispatch.Driver, error) {
					if waits && opened.Load() {
						<-ctx.Done()
					}
					return kim(), nil
				})
				if err != nil {
					t.Fatal(err)
				}
				opened.Store(true)
				c := serveOnPipe(s, allow)
				var reading sync.WaitGroup
				reading.Go(func() { _, _ = io.Copy(io.Discard, c) })
				synctest.Wait()
				hungUp := time.Now()
				c.Close()
				testkit.Equal(t, "the connection was closed after", 0, (<-c.closed).Sub(hungUp))
				if <-c.ended; !waits {
					testkit.Equal(t, "the stream ended after", 0, time.Since(hungUp))
				}
				reading.Wait()
			})
		})
	}
}

// TestRunWaitsForStreams: when Run has returned, nothing of the hub goes on.
func TestRunWaitsForStreams(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, stop := startHub(t, Options{})
		_, ended := onConnection(t, h, allow)
		began := time.Now()
		stop()
		select {
		case <-ended:
		default:
			t.Error("a stream goes on")
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("a client that does not read was cut off after %v", took)
		}
		testkit.Equal(t, "stalled", 1, testutil.ToFloat64(h.metrics.stalled))
	})
}

// TestRefusedClient gets nothing, not even a heartbeat, but a proper end.
func TestRefusedClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, stop := startHub(t, Options{})
		defer stop()
		client, ended := onConnection(t, h, func(context.Context) error { return errors.New("revoked") })
		said, err := io.ReadAll(client)
		<-ended
		if string(said) != "0\r\n\r\n" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
}

// TestPanicOfAStream ends that stream and no other.
func TestPanicOfAStream(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := &testkit.LogBuffer{}
		h, stop := startHub(t, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		defer stop()
		other := adminStream(t, h, "")
		client, ended := onConnection(t, h, func(context.Context) error { panic("a fault") })
		<-ended
		if said, _ := io.ReadAll(client); len(said) > 0 || log.Count("a fault") != 1 {
			t.Errorf("%q, and the log has %s", said, log)
		}
		opens(h, other)
		testkit.Equal(t, "open", 1, testutil.ToFloat64(h.metrics.admins))
	})
}

// TestOneEventIsEncodedOnce for each kind of client, however many there are: all get the same bytes.
func TestOneEventIsEncodedOnce(t *testing.T) {
	h := runHub(t, Options{})
	clients := map[string][]*client{}
	for k := range 50 {
		s, err := h.OpenAdmin(t.Context(), fmt.Sprintf("key_%d", k), "")
		clients["admins"] = append(clients["admins"], listen(t, s, err))
		clients["drivers"] = append(clients["drivers"], driverStream(t, h, kim(), ""))
	}
	happens(h, job(), dispatch.EventExpired, "")
	for kind, all := range clients {
		encoded := map[*byte]bool{}
		for _, c := range all {
			testkit.Eventually(t, "the event is delivered", func() bool { return len(c.all()) == 1 })
			for _, at := range c.bytesOf() {
				encoded[at] = true
			}
		}
		testkit.Equal(t, "encodings for all "+kind, 1, len(encoded))
	}
}

// TestFewStreamsReloadAtOnce after a resync of all, and each does.
func TestFewStreamsReloadAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		loaded, most := afterAResync(t, 3*maxReloads, func([]*Stream) {})
		testkit.Equal(t, "drivers that were loaded again", 3*maxReloads, loaded)
		testkit.Equal(t, "at once", maxReloads, most)
	})
}

// TestEndedStreamsDoNotReload: a stream that ends while it waits for its turn costs no query.
func TestEndedStreamsDoNotReload(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		loaded, _ := afterAResync(t, 3*maxReloads, func(streams []*Stream) {
			for _, s := range streams {
				s.Close()
			}
		})
		testkit.Equal(t, "drivers that were loaded again", maxReloads, loaded)
	})
}

// afterAResync makes that many streams load their drivers again, each of which takes a millisecond, and calls then while the first of
// them do so. It returns how many drivers were loaded, and how many at once at most.
func afterAResync(t *testing.T, streams int, then func([]*Stream)) (all, atOnce int) {
	h, stop := startHub(t, Options{QueueSize: 1})
	defer stop()
	var resynced, at, most, loaded atomic.Int32
	var opened []*Stream
	for range streams {
		v := kim()
		s, err := h.OpenDriver(t.Context(), v.ID, "", func(context.Context) (dispatch.Driver, error) {
			if resynced.Load() == 0 {
				return v, nil
			}
			now := at.Add(1)
			defer at.Add(-1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			}
			time.Sleep(time.Millisecond) // of the bubble's
			loaded.Add(1)
			return v, nil
		})
		listen(t, s, err)
		opened = append(opened, s)
	}
	synctest.Wait()
	resynced.Store(1)
	h.mu.Lock() // so that the second event finds no room
	opens(h)
	opens(h)
	opens(h)
	h.mu.Unlock()
	synctest.Wait()
	then(opened)
	time.Sleep(time.Second) // of the bubble's
	return int(loaded.Load()), int(most.Load())
}
