package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/notify/stream"
	"firsttap/service"
)

func (h *handler) driverStream(c echo.Context, me dispatch.DriverID) error {
	load := func(ctx context.Context) (dispatch.Driver, error) { return h.stores.profiles.Driver(ctx, me) }
	s, err := h.Streams.OpenDriver(c.Request().Context(), me, lastEventID(c), load)
	if err != nil {
		return streamError(unauthenticatedIfGone(err))
	}
	return h.serveStream(c, s, func(ctx context.Context) error {
		token, err := bearer(c)
		if err == nil {
			_, err = h.Tokens.Authenticate(ctx, token)
		}
		return err
	})
}

func (h *handler) adminStream(c echo.Context, actor string) error {
	s, err := h.Streams.OpenAdmin(c.Request().Context(), actor, lastEventID(c))
	if err != nil {
		return streamError(err)
	}
	return h.serveStream(c, s, func(ctx context.Context) error {
		with, err := h.credentials(c)
		if err == nil {
			_, err = h.Keys.Authenticate(ctx, with.key, nil)
		}
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

// serveStream writes the stream until it ends or authenticate refuses its client. It sets its own write deadlines, as the
// server's deadline is for answers of limited length.
func (h *handler) serveStream(c echo.Context, s *stream.Stream, authenticate func(context.Context) error) error {
	defer s.Close()
	ctx := c.Request().Context()
	conn := http.NewResponseController(c.Response().Writer) // echo's own Flush hides errors
	header := c.Response().Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set(echo.HeaderCacheControl, "no-cache")
	header.Set("X-Accel-Buffering", "no") // otherwise nginx buffers the stream
	header.Set("Connection", "close")     // the connection no longer has the server's deadlines
	asked := h.Now()
	_ = s.Serve(ctx, func(frames [][]byte) error {
		if now := h.Now(); now.Sub(asked) >= recheckInterval {
			asked = now
			if err := authenticate(ctx); errors.Is(err, service.ErrUnauthenticated) {
				return err // other errors don't say that the client was revoked
			}
		}
		if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if !c.Response().Committed {
			c.Response().WriteHeader(http.StatusOK)
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
