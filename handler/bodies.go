package handler

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// maxBody bounds the bodies of most requests of admins.
	maxBody = 64 << 10
	// maxSmallBody is enough for a code, a number or a name; maxKeyBody for a push token, or an API key of which each character is escaped.
	maxSmallBody = 4 << 10
	maxKeyBody   = 8 << 10
	// maxBulkBody is enough for 1,000 drivers.
	maxBulkBody = 1 << 20
	// maxBodies bounds the bytes of the bodies that an instance holds at once, and maxStrangersBodies of those that it reads before it
	// knows the caller.
	maxBodies          = 64 << 20
	maxStrangersBodies = 4 << 20
	// maxUncounted is the length of bodies that are not counted, as a tap's or a usual sign-in's: they take less than their connection
	// does.
	maxUncounted = 1 << 10
)

// bodies counts the bytes of requests' bodies that are held at the moment. What has not arrived yet, of a slow client, is not held.
type bodies struct {
	held atomic.Int64
	most int64
}

// boundBodies is a middleware that ends the reading of bodies with errRateLimited while too many bytes are held.
func boundBodies() echo.MiddlewareFunc {
	all, strangers := &bodies{most: maxBodies}, &bodies{most: maxStrangersBodies}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if r.ContentLength >= 0 && r.ContentLength <= maxUncounted {
				return next(c)
			}
			body := &heldBody{ReadCloser: r.Body, all: all}
			if c.Path() == signInPath {
				body.all = strangers
			}
			r.Body = body
			defer func() { body.all.held.Add(-body.n) }()
			return next(c)
		}
	}
}

// heldBody is a body whose bytes are counted until its request ends.
type heldBody struct {
	io.ReadCloser
	all *bodies
	n   int64
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	if b.all.held.Load() >= b.all.most {
		return 0, errRateLimited
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if b.all.held.Add(int64(n)) > b.all.most {
		return n, errRateLimited
	}
	return n, err
}

// closeAfter has the server close the connection after the answer, without waiting for the rest of the body: that could hold the connection
// until the request's timeout. The server does so once it has met a body above its limit.
func closeAfter(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // a test's writer has none
}

// tooLarge returns the error for a body of more bytes than that.
func tooLarge(limit int64) error { return fmt.Errorf("%w: at most %d bytes", errTooLarge, limit) }
