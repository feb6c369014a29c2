package fcmtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	firebase "firebase.google.com/go/v4"
	"firebase.google.com/go/v4/errorutils"
	"firebase.google.com/go/v4/messaging"
	"google.golang.org/api/option"

	"firsttap/internal/servertest"
	"firsttap/notify/fcmtest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// glance is how long a test watches that an event does not occur.
const glance = 50 * time.Millisecond

// connect returns a server and the real SDK as its client.
func connect(t testing.TB) (*fcmtest.Server, *messaging.Client) {
	t.Helper()
	s := listen(t)
	return s, dial(t, s)
}

func listen(t testing.TB) *fcmtest.Server {
	t.Helper()
	s, err := fcmtest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// dial returns the real SDK, which sends every request once and its topic calls to s.
func dial(t testing.TB, s *fcmtest.Server) *messaging.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: once{transport, strings.TrimPrefix(s.URL(), "http://")}}
	app, err := firebase.NewApp(t.Context(), &firebase.Config{ProjectID: "demo"},
		option.WithEndpoint(s.URL()+"/v1"), option.WithHTTPClient(hc))
	if err != nil {
		t.Fatal(err)
	}
	client, err := app.Messaging(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// once keeps the SDK from repeating a request: it does so on 503 and when there is no answer.
type once struct {
	base http.RoundTripper
	host string
}

// statusUnrepeated stands for 503 and for no answer.
const statusUnrepeated = 599

func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", o.host
	resp, err := o.base.RoundTrip(r)
	if err != nil {
		return &http.Response{StatusCode: statusUnrepeated, Header: http.Header{}, Body: http.NoBody, Request: r}, nil //nolint:nilerr // see above
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		resp.StatusCode = statusUnrepeated
	}
	return resp, nil
}

// to returns an offer to the device with that token.
func to(token string) *messaging.Message { return offer(token, "evt_1", 1) }

func offer(token, event string, round int) *messaging.Message {
	return told(token, "dispatch.opened", event, "dsp_1", round)
}

// told returns a message that a phone shows as a notification. Its tag is the dispatch's id, so it replaces an earlier
// notification about the same dispatch.
func told(token, typ, event, dispatch string, round int) *messaging.Message {
	m := silent(token, typ, event, dispatch, round)
	m.Notification = &messaging.Notification{Title: typ, Body: "round " + m.Data["round"]}
	m.Android.Notification = &messaging.AndroidNotification{Tag: dispatch}
	return m
}

// silent returns a message that only the app sees.
func silent(token, typ, event, dispatch string, round int) *messaging.Message {
	return &messaging.Message{
		Token:   token,
		Data:    map[string]string{"type": typ, "event_id": event, "dispatch_id": dispatch, "round": string(rune('0' + round))},
		Android: &messaging.AndroidConfig{Priority: "high"},
	}
}

func mustSend(t testing.TB, client *messaging.Client, m *messaging.Message) string {
	t.Helper()
	name, err := client.Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// post asks s itself, without a connection, so that it works in a bubble of synctest; cut if it has no answer.
func post(ctx context.Context, s *fcmtest.Server, path, body string, headers ...string) (w *httptest.ResponseRecorder, cut bool) {
	w = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			cut = true
		}
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	s.ServeHTTP(w, r)
	return w, false
}

const sendPath = "/v1/projects/demo/messages:send"

// sendRaw posts the bodies, and returns the last answer's status.
func sendRaw(t testing.TB, s *fcmtest.Server, bodies ...string) (status int) {
	t.Helper()
	for _, body := range bodies {
		w, _ := post(t.Context(), s, sendPath, body)
		status = w.Code
	}
	return status
}

// totals are the sums over all phones: received, duplicates, visible, and how many phones show something.
func totals(s *fcmtest.Server) [4]int {
	received, duplicates, visible, told := s.Totals()
	return [4]int{received, duplicates, visible, told}
}

// answerOf returns what the server answered, of an error of the SDK.
func answerOf(t testing.TB, err error) (body, retryAfter string) {
	t.Helper()
	resp := errorutils.HTTPResponse(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), resp.Header.Get("Retry-After")
}
