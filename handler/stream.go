package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/notify/stream"
)

func (h *handler) driverStream(c echo.Context, me dispatch.DriverID) error {
	token, err := bearer(c)
	if err != nil {
		return err
	}
	load := func(ctx context.Context) (dispatch.Driver, error) { return h.Stores.Profiles.Driver(ctx, me) }
	s, err := h.Streams.OpenDriver(c.Request().Context(), me, lastEventID(c), load)
	if err != nil {
		return streamError(unauthenticatedIfGone(err))
	}
	return h.serveStream(c, s, func(ctx context.Context) error {
		_, err := h.Tokens.Authenticate(ctx, token)
		return err
	})
}

func (h *handler) adminStream(c echo.Context, actor string) error {
	with, err := h.credentials(c)
	if err != nil {
		return err
	}
	s, err := h.Streams.OpenAdmin(c.Request().Context(), actor, lastEventID(c))
	if err != nil {
		return streamError(err)
	}
	return h.serveStream(c, s, func(ctx context.Context) error {
		if !with.until.IsZero() && !h.Now().Before(with.until) {
			return auth.ErrUnauthenticated
		}
		_, err := h.Keys.Authenticate(ctx, with.key, true)
		return err
	})
}

func lastEventID(c echo.Context) string { return c.Request().Header.Get("Last-Event-ID") }

func streamError(err error) error {
	if errors.Is(err, stream.ErrFull) || errors.Is(err, stream.ErrClosed) {
		return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err)
	}
	return err
}

// writeTimeout is how long a write to a client may take before the connection is closed.
const writeTimeout = 10 * time.Second

// recheckInterval is how often a stream authenticates its client again before it writes. As it writes every 15 s at least, the
// stream of a revoked client ends by then, and sends no event that is more than recheckInterval later than the revocation.
const recheckInterval = 5 * time.Second

// recheckTimeout bounds that question: while the database is slow, the heartbeats go on. A key that is not listed may take 5 s.
const recheckTimeout = time.Second

// recheck returns a function that calls authenticate every recheckInterval at most, and fails if the client was revoked.
func (h *handler) recheck(authenticate func(context.Context) error) func(context.Context) error {
	asked := h.Now()
	return func(ctx context.Context) error {
		now := h.Now()
		if now.Sub(asked) < recheckInterval {
			return nil
		}
		asked = now
		ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
		defer cancel()
		if err := authenticate(ctx); errors.Is(err, auth.ErrUnauthenticated) {
			return err // other errors don't say that the client was revoked
		}
		return nil
	}
}

// serveStream answers with the stream, until it ends or authenticate refuses its client. The stream gets the connection, and goes on
// after the request: what the server keeps for a request is several times what a stream needs. The function must keep nothing of c.
func (h *handler) serveStream(c echo.Context, s *stream.Stream, authenticate func(context.Context) error) error {
	started := time.Now()
	header := c.Response().Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set(echo.HeaderCacheControl, "no-cache, no-transform") // a proxy that compresses would hold events back
	header.Set("X-Accel-Buffering", "no")                         // otherwise nginx buffers the stream
	header.Set("Connection", "close")                             // the connection no longer has the server's deadlines
	c.Response().WriteHeader(http.StatusOK)
	check := h.recheck(authenticate)
	control := http.NewResponseController(c.Response().Writer)
	conn, _, err := control.Hijack()
	if errors.Is(err, http.ErrNotSupported) {
		return h.serveRequest(c, control, s, check)
	}
	if err != nil {
		s.Close()
		return err
	}
	c.Set(outlived, true)
	a := servedBy(c, started)
	s.ServeConnection(stream.Connection{
		Conn: conn, Chunked: c.Request().ProtoAtLeast(1, 1), WriteTimeout: writeTimeout, Check: check,
		OnEnd: func() { h.finish(context.Background(), a) },
	})
	return nil
}

// serveRequest serves the stream within the request, as HTTP/2 needs it. It sets its own write deadlines, as the server's deadline is
// for answers of limited length.
func (h *handler) serveRequest(c echo.Context, conn *http.ResponseController, s *stream.Stream, check func(context.Context) error) error {
	defer s.Close()
	ctx := c.Request().Context()
	_ = s.Serve(ctx, func(frames [][]byte) error {
		if err := check(ctx); err != nil {
			return err
		}
		if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		for _, f := range frames {
			if _, err := c.Response().Writer.Write(f); err != nil {
				return err
			}
		}
		return conn.Flush()
	}) // the stream's last event says why it ended, unless the client is gone
	return nil
}
