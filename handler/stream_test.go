//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package handler

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
)

// live is a world whose API is served on a real connection, with a hub that runs until the test ends.
type live struct {
	*world
	hub   *stream.Hub
	url   string
	clock *movable
}

func newLive(t testing.TB, o stream.Options, server ...func(*http.Server)) *live {
	t.Helper()
	return newLiveAPI(t, o, func(*API) {}, server...)
}

func newLiveAPI(t testing.TB, o stream.Options, change func(*API), server ...func(*http.Server)) *live {
	t.Helper()
	hub := stream.NewHub(o)
	clock := &movable{}
	w := newWorld(t, func(a *API) {
		change(a)
		a.Streams = hub
		a.Now = clock.now
		a.Tokens = auth.NewTokens(auth.TokenOptions{Secret: []byte("secret"), Now: a.Now, Revocations: a.Revocations})
	})
	stop := testkit.Run(t, hub.Run)
	s := httptest.NewUnstartedServer(w.api)
	for _, change := range server {
		change(s.Config)
	}
	s.Start()
	t.Cleanup(func() { stop(); s.Close() })
	return &live{world: w, hub: hub, url: s.URL, clock: clock}
}

// open is one stream as a client has it.
type open struct {
	path  string
	t     testing.TB
	reply *http.Response
	lines *bufio.Scanner
	last  string // id
	hang  context.CancelFunc
}

func (l *live) open(path, token, lastEventID string, headers ...string) *open {
	l.t.Helper()
	ctx, hang := context.WithCancel(context.Background())
	l.t.Cleanup(hang)
	req, err := http.NewRequestWithContext(ctx, "GET", l.url+path, nil)
	noError(l.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	reply, err := http.DefaultTransport.RoundTrip(req)
	noError(l.t, err)
	l.t.Cleanup(func() { reply.Body.Close() })
	if reply.StatusCode != 200 {
		l.t.Fatalf("%s: %s", path, reply.Status)
	}
	return &open{path: path, t: l.t, reply: reply, lines: bufio.NewScanner(reply.Body), hang: hang}
}

// next returns the next event's name and data, or the text of the next comment.
func (o *open) next() (event, data string) {
	o.t.Helper()
	for o.lines.Scan() {
		switch field, value, _ := strings.Cut(o.lines.Text(), ": "); field {
		case "id":
			o.last = value
		case "event":
			event = value
		case "data":
			data = value
		case "":
			if event != "" {
				documented().checkEvent(o.t, o.path, event, data)
				return event, data
			}
			if value != "" {
				return ":", value
			}
		}
	}
	return "end", fmt.Sprint(o.lines.Err())
}

func (o *open) events(n int) (names []string) {
	for range n {
		name, _ := o.next()
		names = append(names, name)
	}
	return names
}

// tells publishes one event about a dispatch in Seoul.
func (l *live) tells(t dispatch.EventType, driver string) {
	now := time.Now()
	d, _ := dispatch.New(dispatch.NewID(now), "", dispatch.Terms{Region: "seoul", VehicleClass: "45m"},
		dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Minute)}, "key_1", now)
	l.hub.Publish(d, []dispatch.Event{{
		ID: dispatch.NewEventID(now), Type: t, Dispatch: d.ID, Round: 1, Driver: dispatch.DriverID(driver), Actor: driver, At: now,
	}})
}

func TestStream(t *testing.T) {
	l := newLive(t, stream.Options{})
	drivers := l.drivers(2)
	won, lost, admin := l.open("/v1/stream", drivers[0].token, ""), l.open("/v1/stream", drivers[1].token, ""), l.open("/v1/admin/stream", key, "")
	want := map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
	for name, value := range want {
		if got := won.reply.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	if won.reply.Header.Get("X-Request-Id") == "" {
		t.Error("no request id")
	}
	l.tells(dispatch.EventCreated, "")
	l.tells(dispatch.EventAccepted, drivers[0].id)
	l.tells(dispatch.EventExpired, "")
	for _, c := range []struct {
		what string
		o    *open
		want []string
	}{
		{"winner", won, []string{"dispatch.opened", "dispatch.accepted", "dispatch.expired"}},
		{"loser", lost, []string{"dispatch.opened", "dispatch.taken", "dispatch.expired"}},
		{"admin", admin, []string{"dispatch.created", "dispatch.accepted", "dispatch.expired"}},
	} {
		if diff := cmp.Diff(c.want, c.o.events(3)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	lost.hang()
	l.tells(dispatch.EventCreated, "")
	l.tells(dispatch.EventAccepted, drivers[0].id)
	back := l.open("/v1/stream", drivers[1].token, lost.last)
	if diff := cmp.Diff([]string{"dispatch.opened", "dispatch.taken"}, back.events(2)); diff != "" {
		t.Errorf("resumed (-want +got):\n%s", diff)
	}
	if name, _ := l.open("/v1/stream", drivers[1].token, "no\tsuch id").next(); name != "resync" {
		t.Errorf("an unknown id: %s", name)
	}
	if name, _ := l.open("/v1/admin/stream", key, strings.Repeat("9", 5000)).next(); name != "resync" {
		t.Errorf("a long id: %s", name)
	}
}

func TestNoStream(t *testing.T) {
	l := newLive(t, stream.Options{MaxStreams: 1})
	d := l.drivers(1)[0]
	l.putKey(dispatch.Viewer, "viewer")
	l.refused("no token", l.call("GET", "/v1/stream", "", ""), 401, "UNAUTHENTICATED")
	l.refused("a bad token", l.call("GET", "/v1/stream", "x", ""), 401, "UNAUTHENTICATED")
	l.refused("a key for a token", l.call("GET", "/v1/stream", key, ""), 401, "UNAUTHENTICATED")
	l.refused("a token for a key", l.call("GET", "/v1/admin/stream", d.token, ""), 401, "UNAUTHENTICATED")
	l.refused("another method", l.call("POST", "/v1/stream", d.token, ""), 405, "METHOD_NOT_ALLOWED")

	o := l.open("/v1/admin/stream", "viewer", "")
	l.refused("full", l.call("GET", "/v1/stream", d.token, ""), 503, "UNAVAILABLE").hasHeader("Retry-After")
	l.hub.Close()
	if name, _ := o.next(); name != ":" {
		t.Errorf("no last words but %s", name)
	}
	if name, data := o.next(); name != "reconnect" || data != "{}" {
		t.Errorf("is not told to come back: %s %s", name, data)
	}
	if name, text := o.next(); name != "end" || text != "<nil>" {
		t.Errorf("not a clean end: %s %s", name, text)
	}
	l.refused("closed", l.call("GET", "/v1/stream", d.token, ""), 503, "UNAVAILABLE")
}

// TestStreamOutlivesDeadlines that the server has for answers that end.
func TestStreamOutlivesDeadlines(t *testing.T) {
	t.Parallel() // it waits for twice the deadline, within which a busy machine has to send the request
	const deadline = 5 * time.Second
	l := newLive(t, stream.Options{Heartbeat: 50 * time.Millisecond}, func(s *http.Server) {
		s.ReadTimeout, s.WriteTimeout = deadline, deadline
	})
	o := l.open("/v1/stream", l.drivers(1)[0].token, "")
	past := time.Now().Add(2 * deadline)
	for n := 0; time.Now().Before(past); n++ {
		if !o.lines.Scan() {
			t.Fatalf("ended after %d lines: %v", n, o.lines.Err())
		}
	}
	l.tells(dispatch.EventOpened, "")
	if name, text := o.next(); name != "dispatch.opened" {
		t.Errorf("%s %s", name, text)
	}
}

// TestStreamOfARevokedCaller: a key that was revoked while its stream was open, and a token that has ended meanwhile, hear
// nothing more, and others do.
func TestStreamOfARevokedCaller(t *testing.T) {
	l := newLive(t, stream.Options{})
	l.clock.stop() // the streams recheck when the test says so
	d := l.drivers(1)[0]
	l.putKey(dispatch.Viewer, "viewer")
	admin, turnedOut, driver := l.open("/v1/admin/stream", key, ""), l.open("/v1/admin/stream", "viewer", ""), l.open("/v1/stream", d.token, "")
	l.call("DELETE", "/v1/admin/api-keys/key_viewer", key, "").want(204)
	all := func(want map[*open]string) {
		t.Helper()
		l.tells(dispatch.EventOpened, "")
		for o, event := range want {
			if name, text := o.next(); name != event {
				t.Errorf("%s: %s %s, want %s", o.path, name, text, event)
			}
		}
	}
	opened := string(dispatch.EventOpened)
	all(map[*open]string{admin: opened, turnedOut: opened, driver: opened}) // before the first recheck
	l.clock.pass(recheckInterval)
	all(map[*open]string{admin: opened, turnedOut: "end", driver: opened})
	l.clock.pass(auth.TokenTTL)
	all(map[*open]string{admin: opened, driver: "end"})
}

// TestHangingUpEndsTheStream on the server, where it counts, before a write fails.
func TestHangingUpEndsTheStream(t *testing.T) {
	l := newLive(t, stream.Options{MaxStreams: 1, Heartbeat: time.Hour})
	d := l.drivers(1)[0]
	for range 3 {
		o := l.open("/v1/stream", d.token, "")
		o.hang()
		testkit.Retry(t, func() error {
			s, err := l.hub.OpenAdmin(t.Context(), "key_1", "")
			if err == nil {
				s.Close()
			}
			return err
		})
	}
}

// TestRecheckIsBounded: a stream asks a slow database no longer than recheckTimeout, and goes on.
func TestRecheckIsBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := &handler{API: API{Now: time.Now}}
		check := h.recheck(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(recheckInterval)
		began := time.Now()
		noError(t, check(t.Context()))
		if waited := time.Since(began); waited != recheckTimeout {
			t.Errorf("the recheck took %s", waited)
		}
	})
}

// TestShutdown does not wait for streams.
func TestShutdown(t *testing.T) {
	var server *http.Server
	l := newLive(t, stream.Options{}, func(s *http.Server) { server = s })
	server.RegisterOnShutdown(l.hub.Close)
	o := l.open("/v1/stream", l.drivers(1)[0].token, "")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	noError(t, server.Shutdown(ctx))
	noError(t, l.hub.Shutdown(ctx))
	if name, _ := o.next(); name != ":" {
		t.Errorf("no last words but %s", name)
	}
}

// TestClientThatReadsNothing: its connection is closed after a while, and delays no other client.
func TestClientThatReadsNothing(t *testing.T) {
	t.Parallel() // it waits for writeTimeout
	metrics := prometheus.NewRegistry()
	l := newLive(t, stream.Options{RingSize: 1 << 12, QueueSize: 1 << 12, Metrics: metrics}, func(s *http.Server) {
		s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if err := c.(*net.TCPConn).SetWriteBuffer(4096); err != nil {
				t.Error(err)
			}
			return ctx
		}
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	noError(t, err)
	defer conn.Close()
	noError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	fmt.Fprintf(conn, "GET /v1/admin/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", key)
	answer := bufio.NewReaderSize(conn, 16)
	if line, err := answer.ReadString(' '); err != nil {
		t.Fatal(line, err)
	}
	reads := l.open("/v1/admin/stream", key, "")
	const n = 3000 // much more than the kernel keeps for it
	for range n {
		l.tells(dispatch.EventOpened, "")
	}
	for range n {
		if name, text := reads.next(); name != "dispatch.opened" {
			t.Fatal(name, text)
		}
	}
	// The other one's place is free when it has been cut; the one who reads stays.
	testkit.Within(t, time.Minute, "the stalled stream is cut", func() bool { return valueOf(t, metrics, "firsttap_stream_open", "admin") == 1 })
	if n := valueOf(t, metrics, "firsttap_stream_cut_total", "stalled"); n != 1 {
		t.Errorf("%v counted as stalled", n)
	}
	l.tells(dispatch.EventOpened, "")
	for name, text := reads.next(); name != "dispatch.opened"; name, text = reads.next() {
		if name != ":" { // a heartbeat
			t.Fatal(name, text)
		}
	}
}

// valueOf returns the metric whose label has that value.
func valueOf(t testing.TB, r *prometheus.Registry, name, label string) float64 {
	families, err := r.Gather()
	noError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (len(m.Label) == 0 || m.Label[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s of %s", name, label)
	return 0
}

// TestUnchangedDutyIsNotPublished: a driver who is on duty and says so again costs the other instances and the streams nothing.
func TestUnchangedDutyIsNotPublished(t *testing.T) {
	metrics := prometheus.NewRegistry()
	hub := stream.NewHub(stream.Options{QueueSize: 1, Metrics: metrics}) // it does not run, so what is published overflows
	w := newWorld(t, func(a *API) { a.Streams = hub })
	d := w.drivers(1)[0]
	duty := func(on bool) {
		w.call("PUT", "/v1/me/duty", d.token, fmt.Sprintf(`{"on_duty":%v}`, on)).want(200, "on_duty", on)
	}
	dropped := func() float64 { return valueOf(t, metrics, "firsttap_stream_overflow_total", "") }
	for range 5 {
		duty(true)
	}
	if n := dropped(); n != 0 {
		t.Errorf("unchanged: %v entries did not fit", n)
	}
	duty(false)
	duty(false)
	duty(true)
	if n := dropped(); n != 1 {
		t.Errorf("two changes: %v entries did not fit into a queue for one", n)
	}
}
