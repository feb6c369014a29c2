package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"firsttap/dispatch/webhook"
)

const (
	maxRedirects = 3
	// maxHeader bounds the bytes of an answer's header.
	maxHeader = 16 << 10
	// keepIdle is how long a connection may wait for the next delivery.
	keepIdle = 30 * time.Second
	// maxError bounds the text of an error in the delivery log.
	maxError = 300
	// userAgent names the sender to whoever reads an endpoint's log.
	userAgent = "FirstTap"
)

// ClientOptions configure a Client.
type ClientOptions struct {
	// AllowPrivate allows http and every address, for development.
	AllowPrivate bool
	// Resolver looks names up; nil is the system's.
	Resolver *net.Resolver
}

// Client sends deliveries. Unless AllowPrivate is set, it sends them by https and to addresses on the public Internet only: it checks the
// address of each connection after the name was looked up, so neither a redirect nor a name whose address changes leads elsewhere. It uses
// no proxy. It reads no more of an answer than its log keeps.
type Client struct {
	options   ClientOptions
	guard     *ssrf.Guardian
	transport *http.Transport
	http      *http.Client
}

// NewClient returns a client.
func NewClient(o ClientOptions) *Client {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	c := &Client{options: o, guard: ssrf.New(ssrf.WithAnyPort())}
	dialer := &net.Dialer{Resolver: o.Resolver}
	if !o.AllowPrivate {
		dialer.Control = c.checkConnection
	}
	// Without HTTP/2: a connection carries one delivery at a time, and its memory is bounded.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, Protocols: &protocols,
		MaxIdleConnsPerHost: perEndpoint, IdleConnTimeout: keepIdle, MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
	}
	c.http = &http.Client{Transport: c.transport, CheckRedirect: c.checkRedirect}
	return c
}

// Close closes the connections that wait for the next delivery.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Attempt sends the delivery once, and returns what came of it. It takes webhook.AttemptTimeout at most.
func (c *Client) Attempt(ctx context.Context, l webhook.Lease) webhook.Result {
	ctx, cancel := context.WithTimeout(ctx, webhook.AttemptTimeout)
	defer cancel()
	at := time.Now()
	r := webhook.Result{Lease: l, Attempt: webhook.Attempt{At: at}}
	resp, err := c.post(ctx, l, at)
	if resp != nil {
		r.Attempt.HTTPStatus = resp.StatusCode
	}
	switch {
	case err != nil:
		r.Attempt.Error = describe(err)
	case resp.StatusCode/100 == 2:
	default:
		r.Attempt.Error = describeStatus(resp.StatusCode)
		r.Gone = resp.StatusCode == http.StatusGone
	}
	if err == nil {
		// The endpoint has decided with its status: what can't be read of the body changes nothing.
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, webhook.MaxAnswer))
		resp.Body.Close()
		r.Attempt.Answer = strings.ToValidUTF8(string(answer), "")
	}
	r.Attempt.Took = time.Since(at)
	return r
}

func (c *Client) post(ctx context.Context, l webhook.Lease, at time.Time) (*http.Response, error) {
	if _, err := c.parse(l.URL); err != nil {
		return nil, err
	}
	signature, err := sign(l, at)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, bytes.NewReader(l.Delivery.Body))
	if err != nil {
		return nil, err
	}
	signature.set(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", userAgent)
	// Without a value it is not sent. It tells the transport that the request may be repeated on another connection, if the endpoint closed
	// an idle one at the moment of its use.
	req.Header["Idempotency-Key"] = []string{}
	return c.http.Do(req)
}

// checkRedirect follows redirects that repeat the delivery as it is, to URLs that could be registered.
func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	if s := req.Response.StatusCode; s != http.StatusTemporaryRedirect && s != http.StatusPermanentRedirect {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	req.Header.Del("Referer") // a URL may hold a token
	if _, err := c.parse(req.URL.String()); err != nil {
		return fmt.Errorf("%w (after a redirect)", err)
	}
	return nil
}

// describe returns the error in words for the delivery log, without the endpoint's URL.
func describe(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && errors.Is(dial.Err, webhook.ErrNotAllowed) {
		err = dial.Err
	}
	text := err.Error()
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		text = fmt.Sprintf("no answer within %s", webhook.AttemptTimeout)
	case errors.As(err, &dns):
		text = lookupError(dns.Name, err).Error()
	}
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}

func describeStatus(status int) string {
	text := fmt.Sprintf("the endpoint answered %d %s", status, cmp.Or(http.StatusText(status), "(no known status)"))
	if status/100 == 3 {
		text += "; only redirects by 307 and 308 with a Location are followed"
	}
	return text
}
