package handler

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
)

// dialStream sends the request, with an Authorization header, on a new connection. It returns the connection and the answer. The caller
// closes the answer's body.
func (l *live) dialStream(request, token string) (net.Conn, *http.Response) {
	l.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	noError(l.t, err)
	l.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", request, token)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	noError(l.t, err)
	return conn, answer
}

// TestFormOfAStream: HTTP/1.1 gets chunks, the last of which says that the stream is complete, and HTTP/1.0, which knows none, the bare
// events until the connection is closed. So it is through a proxy of either version.
func TestFormOfAStream(t *testing.T) {
	for version, encoding := range map[string]string{"1.1": "chunked", "1.0": ""} {
		t.Run(version, func(t *testing.T) {
			l := newLive(t, stream.Options{})
			_, answer := l.dialStream("GET /v1/stream HTTP/"+version, l.drivers(1)[0].token)
			defer answer.Body.Close()
			if got := strings.Join(answer.TransferEncoding, ","); got != encoding || !answer.Close || answer.StatusCode != 200 {
				t.Errorf("%d, Transfer-Encoding %q, closed: %v", answer.StatusCode, got, answer.Close)
			}
			l.tells(dispatch.EventOpened, "")
			lines := bufio.NewReader(answer.Body)
			if !lineOf(lines, "event: dispatch.opened") {
				t.Error("no event")
			}
			l.hub.Close()
			rest, err := io.ReadAll(lines) // fails without the last chunk
			if err != nil || !strings.HasSuffix(string(rest), "\nevent: reconnect\ndata: {}\n\n") {
				t.Errorf("it ends with %q, %v", rest, err)
			}
		})
	}
}

// TestStreamOverHTTP2: many streams share one connection there, so none gets it.
func TestStreamOverHTTP2(t *testing.T) {
	hub := stream.NewHub(stream.Options{})
	w := newWorld(t, func(a *API) { a.Streams = hub })
	stop := testkit.Run(t, hub.Run)
	s := httptest.NewUnstartedServer(w.api)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() { stop(); s.Close() })
	l := &live{world: w, hub: hub, url: s.URL}
	for range 2 {
		req := request(t.Context(), "GET", s.URL+"/v1/stream", w.drivers(1)[0].token, "")
		req.RequestURI = ""
		answer, err := s.Client().Do(req)
		noError(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		l.tells(dispatch.EventOpened, "")
		if answer.ProtoMajor != 2 || !lineOf(bufio.NewReader(answer.Body), "event: dispatch.opened") {
			t.Errorf("%s, no event", answer.Proto)
		}
	}
}

// TestClientThatSendsMore after its request gets its events, and none of it is read.
func TestClientThatSendsMore(t *testing.T) {
	l := newLive(t, stream.Options{MaxStreams: 1, Heartbeat: 50 * time.Millisecond})
	conn, answer := l.dialStream("GET /v1/stream HTTP/1.1", l.drivers(1)[0].token)
	defer answer.Body.Close()
	fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	lines := bufio.NewReader(answer.Body)
	for range 3 {
		l.tells(dispatch.EventOpened, "")
		if !lineOf(lines, "event: dispatch.opened") {
			t.Fatal("no event")
		}
	}
	conn.Close()
	testkit.Retry(t, func() error { // a heartbeat notices
		s, err := l.hub.OpenAdmin(t.Context(), "key_1", "")
		if err == nil {
			s.Close()
		}
		return err
	})
}

// TestStreamIsObservedAtItsEnd: a stream is counted once, when it ends, though its request has ended long before.
func TestStreamIsObservedAtItsEnd(t *testing.T) {
	type observed struct {
		method, route string
		status        int
		took          time.Duration
	}
	ends := make(chan observed, 10)
	l := newLiveAPI(t, stream.Options{}, func(a *API) {
		a.ObserveRequest = func(method, route string, status int, took time.Duration) {
			ends <- observed{method, route, status, took}
		}
	})
	d := l.drivers(1)[0]
	<-ends // the drivers' making
	o := l.open("/v1/stream", d.token, "")
	began := time.Now()
	l.tells(dispatch.EventOpened, "")
	o.next()
	if len(ends) > 0 {
		t.Errorf("%v while the stream goes on", <-ends)
	}
	lasted := time.Since(began)
	o.hang()
	end := <-ends
	if whole := lasted <= end.took; !whole || end.method != "GET" || end.route != "/v1/stream" || end.status != 200 {
		t.Errorf("observed %v of a stream that lasted longer than %v", end, lasted)
	}
	noError(t, l.hub.Shutdown(t.Context()))
	if len(ends) > 0 {
		t.Errorf("and again %v", <-ends)
	}
}
