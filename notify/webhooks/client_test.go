//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package webhooks

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"firsttap/dispatch/webhook"
	"firsttap/internal/testkit"
)

// TestDelivery: an endpoint gets the body as it was stored, signed, also behind a redirect by 307 or 308, and not the URL that led there.
// Any 2xx is a delivery, nothing else is, and only 410 means gone.
func TestDelivery(t *testing.T) {
	key, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	var status atomic.Int64
	arrived := make(chan error, 1)
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hop := strings.TrimPrefix(r.URL.Path, "/hop/"); hop != r.URL.Path {
			n := int(hop[0] - '0')
			next := fmt.Sprintf("/hop/%d", n-1)
			if n == 1 {
				next = "/hook"
			}
			http.Redirect(w, r, next, 307+n%2)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = key.Verify(body, r.Header)
		}
		for name, want := range map[string]string{"Webhook-Id": "evt_1", "Content-Type": "application/json", "User-Agent": "FirstTap", "Referer": "", "Idempotency-Key": ""} {
			if got := r.Header.Get(name); got != want {
				err = fmt.Errorf("%s is %q, not %q; %w", name, got, want, err)
			}
		}
		if r.Method != "POST" || !bytes.Equal(body, leaseTo("").Delivery.Body) {
			err = fmt.Errorf("%s %s; %w", r.Method, body, err)
		}
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, "answered\xff")
		arrived <- err
	}))
	defer endpoint.Close()
	c := clientOf(t, endpoint)
	for _, s := range []int{200, 201, 202, 299, 300, 400, 401, 404, 410, 429, 500, 503, 599} {
		status.Store(int64(s))
		for _, path := range []string{"/hook", "/hop/1?token=hush", "/hop/2", "/hop/3"} {
			r := c.Attempt(t.Context(), leaseTo("https://"+publicHost+path))
			if err := testkit.Await(t, "the delivery", arrived); err != nil {
				t.Errorf("%d at %s: %v", s, path, err)
			}
			if r.Attempt.HTTPStatus != s || r.Succeeded() != (s < 300) || r.Gone != (s == 410) || r.Attempt.Answer != "answered" {
				t.Errorf("%d at %s: %+v", s, path, r)
			}
		}
	}
	if r := c.Attempt(t.Context(), leaseTo("https://"+publicHost+"/hop/4")); r.Succeeded() || !strings.Contains(r.Attempt.Error, "more than 3 redirects") {
		t.Errorf("four redirects: %+v", r.Attempt)
	}
}

// TestSignatures: during a rotation a delivery is signed with both secrets, so that each verifies it; before and after with one. The
// signature is of the attempt's own time.
func TestSignatures(t *testing.T) {
	const previous = "whsec_b2xkIHNlY3JldCB0aGF0IHNpZ25lZCBiZWZvcmU="
	at := time.Unix(1_700_000_000, 0)
	for name, until := range map[string]time.Time{"during": at.Add(time.Second), "after": at, "none": {}} {
		l := leaseTo(publicName)
		if name != "none" {
			l.Secrets.Previous, l.Secrets.PreviousUntil = previous, until
		}
		s, err := sign(l, at)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		s.set(header)
		if header.Get("webhook-timestamp") != "1700000000" || header.Get("webhook-id") != "evt_1" {
			t.Errorf("%s: %v", name, header)
		}
		for secret, want := range map[string]bool{testSecret: true, previous: name == "during", "whsec_YW5vdGhlcg==": false} {
			key, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if verified := key.VerifyIgnoringTimestamp(l.Delivery.Body, header) == nil; verified != want {
				t.Errorf("%s the rotation, %s verifies: %t", name, secret, verified)
			}
		}
	}
	l := leaseTo(publicName)
	l.Secrets.Current = "whsec_not base64, hush"
	c := NewClient(ClientOptions{})
	defer c.Close()
	if r := c.Attempt(t.Context(), l); r.Succeeded() || strings.Contains(r.Attempt.Error, "hush") {
		t.Errorf("a secret that can't be read: %+v", r.Attempt)
	}
}

// TestErrorsWithoutURL: the log of a delivery does not repeat the endpoint's URL, which may hold a token.
func TestErrorsWithoutURL(t *testing.T) {
	c := NewClient(ClientOptions{AllowPrivate: true})
	defer c.Close()
	r := c.Attempt(t.Context(), leaseTo("http://"+testkit.FreeAddress(t)+"/hook?token=hush"))
	if r.Succeeded() || strings.Contains(r.Attempt.Error, "hush") || r.Attempt.Error == "" {
		t.Errorf("%+v", r.Attempt)
	}
}

// TestAllowPrivate: in development an endpoint may be anywhere, and use http. What else is wrong with a URL stays wrong.
func TestAllowPrivate(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer endpoint.Close()
	c := NewClient(ClientOptions{AllowPrivate: true})
	defer c.Close()
	if err := c.Check(t.Context(), endpoint.URL); err != nil {
		t.Error(err)
	}
	if r := c.Attempt(t.Context(), leaseTo(endpoint.URL)); !r.Succeeded() {
		t.Errorf("%+v", r.Attempt)
	}
	for _, url := range []string{"ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://", "/hook", "http://127.0.0.1:0/"} {
		if err := c.Check(t.Context(), url); err == nil {
			t.Errorf("%s may be registered", url)
		}
	}
}

// TestNoProxy: no proxy of the environment sees a delivery. Its client would not see where the connection leads.
func TestNoProxy(t *testing.T) {
	c := NewClient(ClientOptions{})
	defer c.Close()
	if c.transport.Proxy != nil {
		t.Error("the client uses a proxy")
	}
}

// TestBoundedAnswers: whatever an endpoint answers, an attempt ends after 10 s, and reads little more than what its log keeps.
func TestBoundedAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	buffers := 3 * 4096 // what the transport reads at once, and may have read ahead
	for name, a := range map[string]struct {
		answer func(net.Conn)
		// most bounds the bytes that are read; took is how long the attempt takes.
		most     int
		took     time.Duration
		succeeds bool
		kept     int
	}{
		"an endless body": {func(c net.Conn) {
			fmt.Fprint(c, head, "\r\n")
			repeat(c, strings.Repeat("x", 1000), 0)
		}, len(head) + webhook.MaxAnswer + buffers, 0, true, webhook.MaxAnswer},
		"a body of endless chunks": {func(c net.Conn) {
			fmt.Fprint(c, head, "Transfer-Encoding: chunked\r\n\r\n")
			repeat(c, "3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 0)
		}, len(head) + webhook.MaxAnswer + buffers, 0, true, webhook.MaxAnswer},
		"a body that says it is compressed": {func(c net.Conn) {
			fmt.Fprint(c, head, "Content-Encoding: gzip\r\n\r\n")
			repeat(c, strings.Repeat("x", 1000), 0)
		}, len(head) + webhook.MaxAnswer + buffers, 0, true, webhook.MaxAnswer},
		"a slow body": {func(c net.Conn) {
			fmt.Fprint(c, head, "Content-Length: 1000000\r\n\r\n")
			repeat(c, "x", 1100*time.Millisecond)
		}, len(head) + 100, webhook.AttemptTimeout, true, 9},
		"an endless header": {func(c net.Conn) {
			fmt.Fprint(c, head)
			repeat(c, "X-Y: "+strings.Repeat("z", 1000)+"\r\n", 0)
		}, len(head) + maxHeader + buffers, 0, false, 0},
		"an endless line": {func(c net.Conn) {
			fmt.Fprint(c, head, "X-Y: ")
			repeat(c, strings.Repeat("z", 1000), 0)
		}, len(head) + maxHeader + buffers, 0, false, 0},
		"endless interim answers": {func(c net.Conn) {
			repeat(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 0)
		}, maxHeader + buffers, 0, false, 0},
		"slow interim answers": {func(c net.Conn) {
			repeat(c, "HTTP/1.1 103 Early Hints\r\n\r\n", time.Second)
		}, maxHeader, webhook.AttemptTimeout, false, 0},
		"a slow header": {func(c net.Conn) {
			repeat(c, "H", time.Second)
		}, 100, webhook.AttemptTimeout, false, 0},
		"silence": {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, 0, webhook.AttemptTimeout, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				c := NewClient(ClientOptions{AllowPrivate: true})
				var read atomic.Int64
				var serving sync.WaitGroup
				defer serving.Wait()
				c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					serving.Go(func() {
						defer theirs.Close()
						if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
							a.answer(theirs)
						}
					})
					return countedConn{ours, &read}, nil
				}
				began := time.Now()
				r := c.Attempt(t.Context(), leaseTo("http://endpoint.test/"))
				c.Close()
				if took := time.Since(began); took != a.took || r.Attempt.Took != took {
					t.Errorf("it took %s, and says %s; want %s", took, r.Attempt.Took, a.took)
				}
				if r.Succeeded() != a.succeeds || len(r.Attempt.Answer) != a.kept || len(r.Attempt.Error) > maxError {
					t.Errorf("%+v", r.Attempt)
				}
				if got := int(read.Load()); got > a.most {
					t.Errorf("%d bytes were read, more than %d", got, a.most)
				}
			})
		})
	}
}

// repeat writes the text, and again every pause, until the connection is closed. In a bubble only.
func repeat(c net.Conn, text string, pause time.Duration) {
	for {
		if pause > 0 {
			time.Sleep(pause)
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// countedConn counts the bytes that are read.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// TestIdleConnectionThatIsClosed: an endpoint that closes a connection between two deliveries gets the second one on another connection.
func TestIdleConnectionThatIsClosed(t *testing.T) {
	var arrived atomic.Int64
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == 2 {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				conn.Close() // without a byte of an answer, as when an idle connection is closed
			}
		}
	}))
	defer endpoint.Close()
	c := clientOf(t, endpoint)
	for k := range 3 {
		if r := c.Attempt(t.Context(), leaseTo(publicName)); !r.Succeeded() {
			t.Errorf("delivery %d: %+v", k, r.Attempt)
		}
	}
	if n := arrived.Load(); n != 4 {
		t.Errorf("%d requests, want 4: one was repeated", n)
	}
}
