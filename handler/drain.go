package handler

import "github.com/labstack/echo/v4"

func (h *handler) draining() bool { return h.Draining != nil && h.Draining() }

// partWhenDraining has the client open its next connection, which another instance gets: a connection that is kept until
// the server closes it may be closed just when a request is on its way.
func (h *handler) partWhenDraining(c echo.Context) {
	if h.draining() {
		c.Response().Header().Set(echo.HeaderConnection, "close")
	}
}
