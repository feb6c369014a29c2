// Package handler is the HTTP API: it reads requests strictly, calls the use cases, and answers in the contract's
// words.
package handler

import (
	"context"
	"log/slog"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/notify"
	"firsttap/service"
)

// Store is what the API reads, and writes where there is no rule to follow.
type Store interface {
	Ping(ctx context.Context) error
	Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error)
	List(ctx context.Context, q dispatch.Query) ([]dispatch.Dispatch, string, error)
	Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error)
	AddDrivers(ctx context.Context, drivers []dispatch.Driver) error
	SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (dispatch.Driver, error)
	PutDevice(ctx context.Context, v dispatch.Device) (dispatch.Device, error)
	DeleteDevice(ctx context.Context, driver dispatch.DriverID, installation string) error
	Seen(ctx context.Context, id dispatch.ID, round int, driver dispatch.DriverID) error
	Notifications(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]dispatch.Notification, string, error)
	NotificationsBy(ctx context.Context, status dispatch.NotificationStatus, page dispatch.Page) ([]dispatch.Notification, string, error)
	Funnel(ctx context.Context, id dispatch.ID) (rounds []dispatch.Funnel, forgotten int, err error)
	Redrive(ctx context.Context, id dispatch.NotificationID) (dispatch.Notification, error)
}

// API is everything the HTTP API stands on.
type API struct {
	Store      Store
	Acceptor   *service.Acceptor
	Work       *service.Work
	Dispatcher *service.Dispatcher
	Tokens     *service.Tokens
	Keys       *service.Keys
	Jobs       Jobs
	// Streams are the live streams that clients open. The hub's owner runs it.
	Streams *notify.Hub
	// RedisDegraded reports whether Redis is away; nil where none is configured.
	RedisDegraded func() bool
	// Redriven hears that a notification is due again; nil where nobody wants to.
	Redriven   func()
	DriverRate Rate
	AdminRate  Rate
	Now        func() time.Time
	Log        *slog.Logger
}

type handler struct {
	API
	driverLimit *limiter
	adminLimit  *limiter
}

// New returns the API, ready to serve.
func New(api API) *echo.Echo {
	h := &handler{API: api, driverLimit: newLimiter(api.DriverRate), adminLimit: newLimiter(api.AdminRate)}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = h.answerError
	e.Use(h.observe)

	e.GET("/livez", h.livez)
	e.GET("/readyz", h.readyz)

	v1 := e.Group("/v1")
	v1.GET("/me", h.asDriver(h.me))
	v1.PUT("/me/duty", h.asDriver(h.setDuty))
	v1.PUT("/me/devices/:installation_id", h.asDriver(h.putDevice))
	v1.DELETE("/me/devices/:installation_id", h.asDriver(h.deleteDevice))
	v1.GET("/me/offers", h.asDriver(h.offers))
	v1.GET("/me/dispatches", h.asDriver(h.myDispatches))
	v1.GET("/me/dispatches/:id/claim", h.asDriver(h.receipt))
	v1.GET("/stream", h.asDriver(h.driverStream))
	v1.GET("/dispatches/:id", h.asDriver(h.see))
	v1.POST("/dispatches/:id/accept", h.asDriver(h.accept))
	v1.POST("/dispatches/:id/seen", h.asDriver(h.seen))
	v1.POST("/dispatches/:id/withdraw", h.asDriver(h.withdraw))
	v1.POST("/dispatches/:id/start", h.asDriver(h.start))
	v1.POST("/dispatches/:id/complete", h.asDriver(h.complete))

	admin := v1.Group("/admin")
	admin.POST("/dispatches", h.asAdmin(dispatch.Dispatcher, h.createDispatch))
	admin.GET("/dispatches", h.asAdmin(dispatch.Viewer, h.listDispatches))
	admin.GET("/dispatches/:id", h.asAdmin(dispatch.Viewer, h.getDispatch))
	admin.POST("/dispatches/:id/cancel", h.asAdmin(dispatch.Dispatcher, h.cancelDispatch))
	admin.GET("/stream", h.asAdmin(dispatch.Viewer, h.adminStream))
	admin.GET("/dispatches/:id/notifications", h.asAdmin(dispatch.Viewer, h.dispatchNotifications))
	admin.GET("/notifications", h.asAdmin(dispatch.Viewer, h.notifications))
	admin.POST("/notifications/:id/redrive", h.asAdmin(dispatch.Dispatcher, h.redrive))
	admin.GET("/jobs", h.asAdmin(dispatch.Viewer, h.jobs))
	admin.GET("/jobs/:name/runs", h.asAdmin(dispatch.Viewer, h.jobRuns))
	admin.POST("/jobs/:name/run", h.asAdmin(dispatch.Admin, h.runJob))
	admin.POST("/drivers/bulk", h.asAdmin(dispatch.Admin, h.addDrivers))
	admin.POST("/drivers/:id/tokens", h.asAdmin(dispatch.Admin, h.issueToken))
	return e
}

func (h *handler) livez(c echo.Context) error {
	return c.JSON(200, map[string]string{"status": "ok"})
}

// readyTime bounds how long a probe waits for a database that is frozen.
const readyTime = time.Second

// readyz is 503 without the database; without Redis it is 200 and says so.
func (h *handler) readyz(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyTime)
	defer cancel()
	answer := map[string]string{"status": "ok", "database": "ok"}
	if h.RedisDegraded != nil {
		answer["redis"] = "ok"
		if h.RedisDegraded() {
			answer["status"], answer["redis"] = "degraded", "degraded"
		}
	}
	if err := h.Store.Ping(ctx); err != nil {
		answer["status"], answer["database"] = "unavailable", "unavailable"
		return c.JSON(503, answer)
	}
	return c.JSON(200, answer)
}
