package fcm

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// maxAnswer bounds an answer's body: one for 1,000 tokens has about 100 bytes for each.
	maxAnswer = 1 << 20
	// iidHost is the host to which the SDK sends topic calls, whatever the endpoint.
	iidHost = "iid.googleapis.com"
	// notOK replaces every status but 200. The SDK repeats a request up to four times after a 503 or a connection's error,
	// but not after this status.
	notOK = 599
)

// attempt records one call of the SDK, as the transport saw it.
type attempt struct {
	requests int
	// connected says that there was a connection to write the request to.
	connected atomic.Bool
	err       error // why there is no answer
	status    int   // of the answer, 0 without one
	header    http.Header
	body      []byte
}

type attemptKey struct{}

func withAttempt(ctx context.Context, a *attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// transport makes one request for one call of the SDK, records it in the call's attempt, and returns nothing that makes the
// SDK repeat the request. It is safe for concurrent use.
type transport struct {
	base *http.Transport
	// next is base, or what Options.WrapTransport made of it.
	next http.RoundTripper
	// endpoint replaces Google's; nil for Google's.
	endpoint *url.URL
	// tokens has the access token; nil with an endpoint.
	tokens *tokenCache
}

// newBase returns a transport that keeps up to conns connections. It uses the environment's proxy for Google only.
func newBase(conns int, ownEndpoint bool) *http.Transport {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           conns,
		MaxIdleConnsPerHost:    conns,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		// All attempts share a few connections: one that died unnoticed would fail a hundred attempts at once.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
	if ownEndpoint {
		// MaxConnsPerHost is not for HTTP/2, where a connection carries many requests.
		t.Proxy, t.MaxConnsPerHost = nil, conns
	}
	return t
}

// RoundTrip implements http.RoundTripper. Instead of an error it returns a status that the SDK does not retry.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a, ok := req.Context().Value(attemptKey{}).(*attempt)
	if !ok {
		a = &attempt{}
	}
	a.requests++
	if a.requests > 1 {
		closeBody(req)
		return answer(req, notOK, &attempt{}), nil // the attempt keeps the outcome of the first
	}
	a.err = t.exchange(req, a)
	status := notOK
	if a.status == http.StatusOK {
		status = http.StatusOK
	}
	return answer(req, status, a), nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

func answer(req *http.Request, status int, a *attempt) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: req,
	}
}

// exchange sends the request and reads the answer into a. An answer with a truncated body counts, as its status was read.
func (t *transport) exchange(req *http.Request, a *attempt) error {
	traced := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { a.connected.Store(true) },
	})
	out := req.Clone(traced)
	if t.endpoint != nil && out.URL.Host == iidHost {
		out.URL.Scheme, out.URL.Host, out.Host = t.endpoint.Scheme, t.endpoint.Host, ""
	}
	if t.tokens != nil {
		if err := t.tokens.authorize(out); err != nil {
			closeBody(req)
			return err
		}
	}
	resp, err := t.next.RoundTrip(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	if body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err == nil {
		a.body = body
	}
	return nil
}
