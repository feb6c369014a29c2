//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package fcm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/auth"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	"firsttap/notify"
	"firsttap/notify/fcmtest"
)

// google is FCM under Google's host names.
type google struct {
	*httptest.Server
	fcm     *fcmtest.Server
	sender  *Sender
	mu      sync.Mutex
	headers []http.Header
	hosts   []string
}

// newGoogle redirects the sender's connections to Google to a local server without TLS.
func newGoogle(t *testing.T, tokenURL string, timeout time.Duration) *google {
	t.Helper()
	g := recordingFCM(t)
	g.sender = senderTo(t, "", func(o *Options) {
		o.CredentialsFile, o.Timeout, o.Now = testkit.ServiceAccount(t, tokenURL), timeout, time.Now
	})
	g.sender.transport.base.Proxy = nil
	g.sender.transport.base.DialTLSContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, g.Listener.Addr().String())
	}
	return g
}

// recordingFCM returns FCM without a sender, which records the headers and hosts of requests.
func recordingFCM(t *testing.T) *google {
	t.Helper()
	g := &google{fcm: fcmtest.New()}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.headers, g.hosts = append(g.headers, r.Header.Clone()), append(g.hosts, r.Host)
		g.mu.Unlock()
		g.fcm.ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	t.Cleanup(g.fcm.Close)
	return g
}

func (g *google) send(t *testing.T) notify.Outcome {
	t.Helper()
	return g.sender.Send(t.Context(), outbox.Push{
		Type: dispatch.EventTaken, Silent: true, Device: dispatch.Device{Platform: dispatch.Android, PushToken: "a-push-token"},
	})
}

func TestCredentialsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, says string }{
		"missing.json": {"", "no such file"},
		"text.json":    {"hello", "not the JSON of a key file"},
		"empty.json":   {"{}", `no "type"`},
		"odd.json":     {`{"type":"a_friend"}`, "a_friend"},
		"mail.json":    {`{"type":"service_account"}`, "client_email"},
		"key.json":     {`{"type":"service_account","client_email":"a@b","private_key":"s3cret"}`, "private_key"},
		"key2.json":    {`{"type":"service_account","client_email":"a@b","private_key":"-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n"}`, "private_key"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, name)
			if c.content != "" {
				if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := New(t.Context(), Options{Project: "demo", CredentialsFile: file})
			if err == nil {
				s.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "s3cret") {
				t.Error(err)
			}
		})
	}
}

func TestAccessToken(t *testing.T) {
	url, asked := answering(t, saying(200, `{"access_token":"let-me-in","token_type":"Bearer","expires_in":3600}`))
	g := newGoogle(t, url, 0)
	testkit.Together(64, func(int) {
		if o := g.send(t); o.Class != notify.Sent {
			t.Errorf("%+v", o)
		}
	})
	if _, o := g.sender.Subscribe(t.Context(), "dsp_1", []string{"a-push-token"}); o.Class != notify.Sent {
		t.Errorf("a topic call: %+v", o)
	}
	testkit.Equal(t, "requests for access tokens", 1, asked.Load())
	if len(g.headers) != 65 {
		t.Fatalf("%d requests", len(g.headers))
	}
	for i, h := range g.headers {
		if h.Get("Authorization") != "Bearer let-me-in" || h.Get("X-Goog-User-Project") != "payer" {
			t.Errorf("request %d to %s has %v", i, g.hosts[i], h)
		}
	}
	if g.hosts[0] != "fcm.googleapis.com" || g.hosts[64] != iidHost {
		t.Errorf("sent to %s and %s", g.hosts[0], g.hosts[64])
	}
}

func TestNoAccessToken(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		class  notify.Class
	}{
		"refused":   {400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`, notify.Auth},
		"forbidden": {403, `{"error":"access_denied"}`, notify.Auth},
		"busy":      {429, `{}`, notify.Unreached},
		"rubbish":   {200, `<html>`, notify.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := answering(t, saying(c.status, c.body))
			g := newGoogle(t, url, 0)
			now := time.Now()
			g.sender.transport.tokens.now = func() time.Time { return now }
			for range 3 { // within the pause after a failure, which never ends
				if o := g.send(t); o.Class != c.class || o.Reason == "" {
					t.Errorf("got %+v, want %s", o, c.class)
				}
			}
			testkit.Equal(t, "requests without an access token", 0, g.fcm.Requests())
			if n := asked.Load(); c.class == notify.Auth && n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
	t.Run("away", func(t *testing.T) {
		if o := newGoogle(t, "http://"+testkit.FreeAddress(t), 0).send(t); o.Class != notify.Unreached {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		done := make(chan struct{})
		url, asked := answering(t, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(done)
		})
		g := newGoogle(t, url, 200*time.Millisecond)
		if o := g.send(t); o.Class != notify.Unreached || !strings.Contains(o.Reason, "no access token yet") {
			t.Errorf("got %+v", o)
		}
		testkit.Eventually(t, "the request for an access token", func() bool { return asked.Load() == 1 })
		g.sender.Close()
		testkit.Await(t, "Close hangs up", done)
	})
}

// provider calls its function and counts the calls.
type provider struct {
	asked int
	give  func(ctx context.Context) (*auth.Token, error)
}

func (p *provider) Token(ctx context.Context) (*auth.Token, error) {
	p.asked++
	return p.give(ctx)
}

func TestAccessTokenIsRenewedInTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		fails := false
		p := &provider{give: func(context.Context) (*auth.Token, error) {
			time.Sleep(time.Second)
			if fails {
				return nil, errors.New("away")
			}
			return &auth.Token{Value: "until " + time.Now().Add(time.Hour).Format(clock), Expiry: time.Now().Add(time.Hour)}, nil
		}}
		b := &tokenCache{source: p, now: time.Now}
		b.lifetime, b.cancel = context.WithCancel(t.Context())
		defer b.close()
		check := func(what, value string, took time.Duration, asked int) {
			t.Helper()
			start := time.Now()
			token, err := b.current(t.Context())
			if value == "" && err == nil || value != "" && (err != nil || token.Value != value) {
				t.Errorf("%s: got %v, %v", what, token, err)
			}
			testkit.Equal(t, what+", its duration", took, time.Since(start))
			synctest.Wait()
			testkit.Equal(t, what+", requests", asked, p.asked)
		}
		// The clock of synctest starts at midnight.
		check("the first", "until 01:00", time.Second, 1)
		check("again", "until 01:00", 0, 1)
		time.Sleep(57 * time.Minute)
		check("soon over", "until 01:00", 0, 2)
		time.Sleep(2 * time.Second)
		check("renewed meanwhile", "until 01:57", 0, 2)
		fails = true
		time.Sleep(57 * time.Minute)
		check("soon over, and none to be had", "until 01:57", 0, 3)
		time.Sleep(1500 * time.Millisecond)
		check("in the pause", "until 01:57", 0, 3)
		time.Sleep(time.Second)
		check("after it", "until 01:57", 0, 4)
		time.Sleep(10 * time.Minute)
		check("over", "", time.Second, 5)
		check("over, in the pause", "", 0, 5)
		fails = false
		time.Sleep(2 * time.Second)
		check("back", "until 03:04", time.Second, 6)
	})
}

func TestCloseEndsTheFetch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := &tokenCache{now: time.Now, source: &provider{give: func(ctx context.Context) (*auth.Token, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}}
		b.lifetime, b.cancel = context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if token, err := b.current(t.Context()); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, %v", token, err)
			}
		})
		synctest.Wait()
		start := time.Now()
		b.close()
		testkit.Equal(t, "the duration", 0, time.Since(start))
		waiting.Wait()
	})
}

// With an endpoint, no credentials are sent, whatever the environment holds.
func TestNoCredentialsToAnotherEndpoint(t *testing.T) {
	tokenURL, asked := answering(t, saying(200, `{"access_token":"secret","expires_in":3600}`))
	file := testkit.ServiceAccount(t, tokenURL)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	g := recordingFCM(t)
	for _, credentials := range []string{"", file, "/nowhere"} {
		g.sender = senderTo(t, g.URL+"/v1", func(o *Options) { o.CredentialsFile = credentials })
		if o := g.send(t); o.Class != notify.Sent {
			t.Errorf("%+v", o)
		}
		if _, o := g.sender.Subscribe(t.Context(), "dsp_1", []string{"x"}); o.Class != notify.Sent {
			t.Errorf("a topic call: %+v", o)
		}
	}
	if len(g.headers) != 6 || asked.Load() != 0 {
		t.Fatalf("%d requests, %d for an access token", len(g.headers), asked.Load())
	}
	for _, h := range g.headers {
		if h.Get("Authorization") != "" || h.Get("X-Goog-User-Project") != "" || strings.Contains(fmt.Sprint(h), "secret") {
			t.Errorf("sent %v", h)
		}
	}
}

func TestSecondRequestIsNotMade(t *testing.T) {
	fcm := simulate(t)
	f := senderTo(t, fcm.URL())
	a := &attempt{}
	for _, want := range []int{http.StatusOK, notOK} {
		req, err := http.NewRequestWithContext(withAttempt(t.Context(), a), http.MethodPost, fcm.URL()+"/v1/projects/demo/messages:send",
			strings.NewReader(`{"message":{"token":"x","data":{"type":"dispatch.taken"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		testkit.Equal(t, "the status", want, resp.StatusCode)
	}
	if fcm.Requests() != 1 || a.status != http.StatusOK {
		t.Errorf("%d requests, status %d stands", fcm.Requests(), a.status)
	}
}

func TestSDKVersion(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "firebase.google.com/go/v4 v"+sdkVersion+"\n") {
		t.Errorf("go.mod has another version of the SDK than %s", sdkVersion)
	}
}
