package fcm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// noon is the clock of these tests: 12:00 in Seoul.
func noon() time.Time { return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) }

func simulate(t testing.TB) *fcmtest.Server {
	t.Helper()
	server, err := fcmtest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// senderTo returns a sender to an endpoint. Edit changes its options.
func senderTo(t testing.TB, endpoint string, edit ...func(*Options)) *Sender {
	t.Helper()
	o := Options{Project: "demo", Endpoint: endpoint, Zone: seoul(t), Now: noon}
	for _, e := range edit {
		e(&o)
	}
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const aToken = "dGhpcyBpcyBh:token-of_a-phone"

func pushTo(token string) outbox.Push {
	p := offered()
	p.Device.PushToken = token
	return p
}

// Each attempt is one request, whatever the answer. The SDK alone would make up to five.
func TestClasses(t *testing.T) {
	date := noon().Add(90 * time.Second).Format(http.TimeFormat)
	knob := func(change func(*fcmtest.Knobs)) func(*fcmtest.Server) {
		return func(s *fcmtest.Server) { s.Set(change) }
	}
	status := func(status int, code, retryAfter string) func(*fcmtest.Server) {
		return knob(func(k *fcmtest.Knobs) { k.Status, k.ErrorCode, k.RetryAfter = status, code, retryAfter })
	}
	for name, c := range map[string]struct {
		set      func(*fcmtest.Server)
		token    string
		topic    string
		class    notify.Class
		after    time.Duration
		reason   string // is part of it
		requests int64
	}{
		"taken":                 {class: notify.Sent, requests: 1},
		"unregistered":          {set: func(s *fcmtest.Server) { s.Kill(aToken) }, class: notify.DeadToken, reason: "404 UNREGISTERED: Requested entity", requests: 1},
		"not found":             {set: status(404, "-", ""), class: notify.Auth, reason: "404 NOT_FOUND", requests: 1},
		"malformed":             {token: "BAD", class: notify.BadToken, reason: "message.token", requests: 1},
		"invalid argument":      {set: status(400, "", ""), class: notify.Poison, reason: "400 INVALID_ARGUMENT", requests: 1},
		"refused payload":       {set: func(s *fcmtest.Server) { s.Poison("dispatch.opened") }, class: notify.Poison, requests: 1},
		"refused by the SDK":    {topic: "no topic", class: notify.Poison, reason: "not sent: malformed topic name"},
		"too large":             {set: status(413, "", ""), class: notify.Poison, requests: 1},
		"quota":                 {set: status(429, "", ""), class: notify.Quota, requests: 1},
		"quota, seconds":        {set: status(429, "", "30"), class: notify.Quota, after: 30 * time.Second, requests: 1},
		"quota, date":           {set: status(429, "", date), class: notify.Quota, after: 90 * time.Second, requests: 1},
		"platform":              {set: status(401, "", ""), class: notify.PlatformAuth, reason: "THIRD_PARTY_AUTH_ERROR", requests: 1},
		"platform, by APNs":     {set: status(401, "APNS_AUTH_ERROR", ""), class: notify.PlatformAuth, requests: 1},
		"credentials":           {set: status(401, "-", ""), class: notify.Auth, reason: "401 UNAUTHENTICATED", requests: 1},
		"permission":            {set: status(403, "-", ""), class: notify.Auth, reason: "403 PERMISSION_DENIED", requests: 1},
		"sender":                {set: func(s *fcmtest.Server) { s.SetForeign(aToken) }, class: notify.WrongSender, requests: 1},
		"sender, of a topic":    {set: status(403, "", ""), topic: "dsp_1", class: notify.Auth, requests: 1},
		"no token of a topic":   {set: status(404, "", ""), topic: "dsp_1", class: notify.Poison, requests: 1},
		"unavailable":           {set: status(503, "", ""), class: notify.Unavailable, reason: "503 UNAVAILABLE", requests: 1},
		"unavailable, seconds":  {set: status(503, "", "7"), class: notify.Unavailable, after: 7 * time.Second, requests: 1},
		"unavailable, date":     {set: status(503, "", date), class: notify.Unavailable, after: 90 * time.Second, requests: 1},
		"unavailable, for ever": {set: status(503, "", "9223372036854775807"), class: notify.Unavailable, after: time.Hour, requests: 1},
		"unavailable, past":     {set: status(503, "", noon().Add(-time.Minute).Format(http.TimeFormat)), class: notify.Unavailable, requests: 1},
		"unavailable, rubbish":  {set: status(503, "", "soon"), class: notify.Unavailable, requests: 1},
		"internal":              {set: status(500, "", ""), class: notify.Unsure, reason: "500 INTERNAL", requests: 1},
		"a proxy's page":        {set: status(502, "", ""), class: notify.Unsure, reason: "502 Bad Gateway", requests: 1},
		"unreadable":            {set: knob(func(k *fcmtest.Knobs) { k.BadJSON = 1 }), class: notify.Unsure, reason: "accepted, but", requests: 1},
		"cut":                   {set: knob(func(k *fcmtest.Knobs) { k.Drop = 1 }), class: notify.Unsure, reason: "EOF", requests: 1},
		"taken and cut":         {set: knob(func(k *fcmtest.Knobs) { k.DropAfterAccept = 1 }), class: notify.Unsure, reason: "EOF", requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := simulate(t)
			if c.set != nil {
				c.set(server)
			}
			p := pushTo(aToken)
			if c.token != "" {
				p.Device.PushToken = c.token
			}
			if c.topic != "" {
				p.Device, p.Topic = dispatch.Device{}, c.topic
			}
			got := senderTo(t, server.URL()+"/v1").Send(t.Context(), p)
			if got.Class != c.class || got.RetryAfter != c.after || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v; want %s, %v, %q", got, c.class, c.after, c.reason)
			}
			if got.Class == notify.Sent && got.Reason != "" {
				t.Errorf("a sent push has a reason: %q", got.Reason)
			}
			testkit.Equal(t, "requests", c.requests, server.Requests())
		})
	}
}

// When a push is tried again is the relay's decision: the SDK neither repeats a request after a 503 nor waits.
func TestUnavailableAnswersAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := fcmtest.New() // answers without a network, so that the bubble's clock stands still
		server.Set(func(k *fcmtest.Knobs) { k.Status, k.RetryAfter = http.StatusServiceUnavailable, "7" })
		s := senderTo(t, "http://fcm.test/v1", func(o *Options) {
			o.WrapTransport = func(http.RoundTripper) http.RoundTripper { return server }
		})
		began := time.Now()
		got := s.Send(t.Context(), pushTo(aToken))
		if took := time.Since(began); got.Class != notify.Unavailable || got.RetryAfter != 7*time.Second || server.Requests() != 1 || took != 0 {
			t.Errorf("after %s and %d requests: %+v", took, server.Requests(), got)
		}
	})
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fcmtest.Knobs){
		"hangs":           func(k *fcmtest.Knobs) { k.Hang = true },
		"taken and hangs": func(k *fcmtest.Knobs) { k.HangAfterAccept = 1 },
	} {
		t.Run(name+", timeout", func(t *testing.T) {
			t.Parallel()
			server := simulate(t)
			server.Set(change)
			s := senderTo(t, server.URL()+"/v1", func(o *Options) { o.Timeout = 5 * time.Second })
			wantOnce(t, server, s.Send(t.Context(), pushTo(aToken)))
		})
		t.Run(name+", canceled", func(t *testing.T) {
			server := simulate(t)
			server.Set(change)
			ctx, cancel := context.WithCancel(t.Context())
			server.OnSend(func(fcmtest.Request) { cancel() })
			wantOnce(t, server, senderTo(t, server.URL()+"/v1").Send(ctx, pushTo(aToken)))
		})
	}
}

func wantOnce(t *testing.T, server *fcmtest.Server, o notify.Outcome) {
	t.Helper()
	if o.Class != notify.Unsure || server.Requests() != 1 {
		t.Errorf("got %+v after %d requests; want unsure after one", o, server.Requests())
	}
}

func TestUnreached(t *testing.T) {
	for name, endpoint := range map[string]string{
		"refused": "http://" + testkit.FreeAddress(t) + "/v1", "no such host": "http://nobody.invalid/v1",
	} {
		t.Run(name, func(t *testing.T) {
			s := senderTo(t, endpoint)
			if o := s.Send(t.Context(), pushTo(aToken)); o.Class != notify.Unreached || o.Reason == "" {
				t.Errorf("got %+v", o)
			}
			if _, o := s.Subscribe(t.Context(), "dsp_1", []string{aToken}); o.Class != notify.Unreached {
				t.Errorf("a topic call: %+v", o)
			}
		})
	}
	t.Run("canceled before", func(t *testing.T) {
		server := simulate(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if o := senderTo(t, server.URL()+"/v1").Send(ctx, pushTo(aToken)); o.Class != notify.Unreached || server.Requests() != 0 {
			t.Errorf("got %+v after %d requests", o, server.Requests())
		}
	})
	t.Run("no TLS there", func(t *testing.T) {
		server := simulate(t)
		s := senderTo(t, "https"+strings.TrimPrefix(server.URL(), "http")+"/v1")
		if o := s.Send(t.Context(), pushTo(aToken)); o.Class != notify.Unreached || server.Requests() != 0 {
			t.Errorf("got %+v after %d requests", o, server.Requests())
		}
	})
}

// answering serves one answer to everything, and counts the requests.
func answering(t *testing.T, answer http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that a client hangs up
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

const violation = `{"error":{"status":"INVALID_ARGUMENT","message":%q,"details":[
	{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"INVALID_ARGUMENT"},
	{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":%q,"description":"no"}]}]}}`

// Answers that fcmtest does not give: those of other servers, and unusual ones of FCM.
func TestOddAnswers(t *testing.T) {
	const words = "The registration token is not a valid FCM registration token"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		class  notify.Class
	}{
		"no name": {saying(200, `{}`), notify.Unsure},
		"created": {saying(201, `{"name":"x"}`), notify.Unsure},
		"nothing": {saying(204, ``), notify.Unsure},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"name":"%s"}`, strings.Repeat("x", 2<<20))
		}, notify.Unsure},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"name":"x"}`)
		}, notify.Unsure},
		"moved": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/elsewhere", http.StatusTemporaryRedirect)
		}, notify.Unsure},
		"see other": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/elsewhere", http.StatusSeeOther)
		}, notify.Unsure},
		"of the token":         {saying(400, fmt.Sprintf(violation, "Request contains an invalid argument.", "message.token")), notify.BadToken},
		"of the token, words":  {saying(400, `{"error":{"status":"INVALID_ARGUMENT","message":"`+words+`"}}`), notify.BadToken},
		"of another field":     {saying(400, fmt.Sprintf(violation, words, "message.data[0].value")), notify.Poison},
		"a proxy's 400":        {saying(400, "Client sent an HTTP request to an HTTPS server.\n"), notify.Unsure},
		"a proxy's page":       {saying(400, "<html>Bad Request"), notify.Unsure},
		"no API":               {saying(403, `{"error":{"status":"PERMISSION_DENIED","message":"disabled"}}`), notify.Auth},
		"no route":             {saying(404, "404 page not found\n"), notify.Auth},
		"a page that is away":  {saying(503, "<html>"), notify.Unavailable},
		"rubbish":              {saying(500, "\x00\xff{"), notify.Unsure},
		"an error of no shape": {saying(500, `{"error":[1]}`), notify.Unsure},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, requests := answering(t, c.answer)
			o := senderTo(t, endpoint+"/v1").Send(t.Context(), pushTo(aToken))
			if o.Class != c.class || o.Reason == "" || requests.Load() != 1 {
				t.Errorf("got %+v after %d requests; want %s after one", o, requests.Load(), c.class)
			}
		})
	}
}

func TestReasonIsFitToBeShown(t *testing.T) {
	for name, said := range map[string]string{
		"token":    "this token: " + aToken + ", " + aToken,
		"at end":   strings.Repeat("x", 150) + aToken, // which must not be cut before it is found
		"long":     strings.Repeat("가", 500),
		"control":  "a\x00b\r\n\tc\x1b[31m",
		"not text": "\xff\xfe\xfd",
	} {
		t.Run(name, func(t *testing.T) {
			for form, body := range map[string]string{"json": fmt.Sprintf(`{"error":{"status":"INTERNAL","message":%q}}`, said), "plain": said} {
				endpoint, _ := answering(t, saying(500, body))
				s := senderTo(t, endpoint+"/v1")
				_, topical := s.Subscribe(t.Context(), "dsp_1", []string{"another-of-the-tokens", aToken})
				for _, o := range []notify.Outcome{s.Send(t.Context(), pushTo(aToken)), topical} {
					if strings.Contains(o.Reason, aToken[:12]) || len(o.Reason) > 200 || !utf8.ValidString(o.Reason) ||
						strings.ContainsAny(o.Reason, "\x00\r\n\t\x1b") || !strings.HasPrefix(o.Reason, "500 ") {
						t.Errorf("%s: %q", form, o.Reason)
					}
				}
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	server := simulate(t)
	for _, path := range []string{"/v1", "/v1/", "/v1//", "", "/"} {
		s := senderTo(t, server.URL()+path)
		if o := s.Send(t.Context(), pushTo(aToken)); o.Class != notify.Sent {
			t.Errorf("%q: %+v", path, o)
		}
		if _, o := s.Subscribe(t.Context(), "dsp_1", []string{aToken}); o.Class != notify.Sent {
			t.Errorf("%q, a topic call: %+v", path, o)
		}
	}
	for _, endpoint := range []string{
		"127.0.0.1:9099", "ftp://127.0.0.1/v1", "http://", "http://h/v2", "http://u:secret@h/v1", "http://h/v1?key=secret", "http://h\x00",
	} {
		s, err := New(t.Context(), Options{Project: "demo", Endpoint: endpoint})
		if err == nil {
			s.Close()
			t.Errorf("%q was accepted", endpoint)
		} else if !strings.Contains(err.Error(), "endpoint") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, project := range []string{"", "a/b", "a b", "../x"} {
		s, err := New(t.Context(), Options{Project: project, Endpoint: server.URL()})
		if err == nil {
			s.Close()
			t.Errorf("project %q was accepted", project)
		}
	}
}

// answerTogether holds every answer until n requests are in flight. If that many never are, the test fails.
func answerTogether(t testing.TB, n int64) func(fcmtest.Request) {
	var arrived atomic.Int64
	all := make(chan struct{})
	return func(fcmtest.Request) {
		if arrived.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(testkit.Patience): //nolint:forbidigo // it gives up, and fails
			t.Errorf("%d requests are never in flight at the same time", n)
		}
	}
}

// As many requests as MaxConns are in flight at the same time, and the next ones use the same connections.
func TestConnectionsAreReused(t *testing.T) {
	const width, rounds = 256, 4
	phones := fcmtest.New()
	server := httptest.NewUnstartedServer(phones)
	var accepted, closed atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			accepted.Add(1)
		case http.StateClosed:
			closed.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	defer phones.Close()
	s := senderTo(t, server.URL, func(o *Options) { o.MaxConns, o.Timeout = width, time.Minute })
	for range rounds {
		phones.OnSend(answerTogether(t, width))
		testkit.Together(width, func(i int) {
			if o := s.Send(t.Context(), pushTo(fmt.Sprint("token-", i))); o.Class != notify.Sent {
				t.Errorf("%+v", o)
			}
		})
	}
	testkit.Equal(t, "requests", int64(width*rounds), phones.Requests())
	if n := accepted.Load(); n > width {
		t.Errorf("%d connections for %d sends at a time", n, width)
	}

	s.Close()
	testkit.Eventually(t, "all connections are closed", func() bool { return closed.Load() == accepted.Load() })
}
