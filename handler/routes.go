// Package handler is the HTTP API: it reads requests strictly, calls the use cases, and answers in the contract's
// words.
package handler

import (
	"context"
	"log/slog"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/console"
	"firsttap/dispatch"
	"firsttap/limit"
	"firsttap/notify/stream"
	"firsttap/outbox"
	"firsttap/service"
)

// Store is what the API reads, and writes where there is no rule to follow.
type Store interface {
	Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error)
	List(ctx context.Context, q dispatch.Query) ([]dispatch.Dispatch, string, error)
	Events(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]dispatch.Event, string, error)
	Driver(ctx context.Context, id dispatch.DriverID) (dispatch.Driver, error)
	AddDrivers(ctx context.Context, drivers []dispatch.Driver) error
	SetDuty(ctx context.Context, id dispatch.DriverID, onDuty bool) (dispatch.Driver, error)
	PutDevice(ctx context.Context, v dispatch.Device) (dispatch.Device, error)
	DeleteDevice(ctx context.Context, driver dispatch.DriverID, installation string) error
	Seen(ctx context.Context, id dispatch.ID, round int, driver dispatch.DriverID) error
	Notifications(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]outbox.Notification, string, error)
	NotificationsBy(ctx context.Context, status outbox.Status, page dispatch.Page) ([]outbox.Notification, string, error)
	Funnel(ctx context.Context, id dispatch.ID) (rounds []outbox.Funnel, forgotten int, err error)
	Redrive(ctx context.Context, id dispatch.NotificationID) (outbox.Notification, error)
	Audit(ctx context.Context, q dispatch.AuditQuery) ([]dispatch.AuditEntry, string, error)
	NoteSignIn(ctx context.Context, key, address string) error
	driverStore
	insightStore
	onceStore
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
	Streams *stream.Hub
	// DatabaseUp reports whether the database takes writes, without asking it; nil where nobody tells.
	DatabaseUp func() bool
	// Revocations end drivers' tokens. Their owner runs them, and has Tokens heed them.
	Revocations *service.Revocations
	// RedisDegraded reports whether Redis is away; nil where none is configured.
	RedisDegraded func() bool
	// Draining reports whether the instance is about to end; nil where nobody tells.
	Draining func() bool
	// Redriven hears that a notification is due again; nil where nobody wants to.
	Redriven func()
	// Answered hears of every request: its route as a pattern, "" where there is none, and how long the answer took. It is
	// called by many at once; nil where nobody wants to.
	Answered   func(method, route string, status int, took time.Duration)
	DriverRate limit.Rate
	AdminRate  limit.Rate
	// DriverLimit and AdminLimit are of this instance alone, by the rates, where they are nil.
	DriverLimit, AdminLimit *limit.Limiter
	// SignIns bounds those that fail. Its owner runs it; where it is nil nobody is told of them.
	SignIns *service.SignIns
	// SessionSecret seals the cookies of those who sign in: the same on every instance.
	SessionSecret []byte
	// PreviousSecrets open cookies that were sealed before the secret was replaced.
	PreviousSecrets [][]byte
	// Firebase is where drivers sign in who have no token of ours; nil where they can't.
	Firebase *FirebaseSignIn
	Now      func() time.Time
	Log      *slog.Logger
	// Version is the service's, as the OpenAPI document says it.
	Version string
}

type handler struct {
	API
	sessions *sessions
	searches *searches
}

// New returns the API, ready to serve.
func New(api API) *echo.Echo {
	h := &handler{
		API: api, sessions: newSessions(api.SessionSecret, api.PreviousSecrets...), searches: newSearches(),
	}
	if h.DriverLimit == nil {
		h.DriverLimit = limit.New(api.DriverRate.Limit())
	}
	if h.AdminLimit == nil {
		h.AdminLimit = limit.New(api.AdminRate.Limit())
	}
	if h.SignIns == nil {
		h.SignIns = service.NewSignIns(service.UsualSignInLimits(), nil, nil, h.Now, h.Log)
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = h.answerError
	e.Use(guard, h.observe)

	e.GET("/livez", h.livez)
	e.GET("/readyz", h.readyz)
	docs(e, api.Version)
	pages(e, map[string]string{
		"assets": console.Policy(), "console": console.Policy(), "driver": console.Policy(api.Firebase.hosts()...),
	})

	e.GET("/v1/sign-in", h.signInWays)
	e.POST("/v1/session", h.signIn)
	e.GET("/v1/session", h.session)
	e.DELETE("/v1/session", h.signOut)

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
	v1.POST("/dispatches/:id/decline", h.asDriver(h.decline))
	v1.POST("/dispatches/:id/withdraw", h.asDriver(h.withdraw))
	v1.POST("/dispatches/:id/start", h.asDriver(h.start))
	v1.POST("/dispatches/:id/complete", h.asDriver(h.complete))

	admin := v1.Group("/admin")
	admin.GET("/board", h.asAdmin(dispatch.Viewer, h.board))
	admin.GET("/supply", h.asAdmin(dispatch.Viewer, h.supply))
	admin.GET("/stream", h.asAdmin(dispatch.Viewer, h.adminStream))

	admin.POST("/dispatches", h.asAdmin(dispatch.Dispatcher, h.createDispatch))
	admin.POST("/dispatches/preview", h.asAdmin(dispatch.Dispatcher, h.previewDispatch))
	admin.GET("/dispatches", h.asAdmin(dispatch.Viewer, h.listDispatches), compressed())
	admin.GET("/dispatches/:id", h.asAdmin(dispatch.Viewer, h.getDispatch))
	admin.PATCH("/dispatches/:id", h.asAdmin(dispatch.Dispatcher, h.patchDispatch))
	admin.POST("/dispatches/:id/cancel", h.asAdmin(dispatch.Dispatcher, h.cancelDispatch))
	admin.POST("/dispatches/:id/reopen", h.asAdmin(dispatch.Dispatcher, h.reopenDispatch))
	admin.POST("/dispatches/:id/extend", h.asAdmin(dispatch.Dispatcher, h.extendDispatch))
	admin.POST("/dispatches/:id/assign", h.asAdmin(dispatch.Dispatcher, h.assignDispatch))
	admin.POST("/dispatches/:id/unassign", h.asAdmin(dispatch.Dispatcher, h.unassignDispatch))
	admin.GET("/dispatches/:id/offers", h.asAdmin(dispatch.Viewer, h.dispatchOffers))
	admin.GET("/dispatches/:id/attempts", h.asAdmin(dispatch.Viewer, h.attempts))
	admin.GET("/dispatches/:id/events", h.asAdmin(dispatch.Viewer, h.dispatchEvents))
	admin.GET("/dispatches/:id/notifications", h.asAdmin(dispatch.Viewer, h.dispatchNotifications))

	admin.POST("/drivers", h.asAdmin(dispatch.Admin, h.createDriver))
	admin.POST("/drivers/bulk", h.asAdmin(dispatch.Admin, h.addDrivers))
	admin.GET("/drivers", h.asAdmin(dispatch.Viewer, h.listDrivers))
	admin.GET("/drivers/:id", h.asAdmin(dispatch.Viewer, h.getDriver))
	admin.PATCH("/drivers/:id", h.asAdmin(dispatch.Admin, h.patchDriver))
	admin.POST("/drivers/:id/suspend", h.asAdmin(dispatch.Admin, h.suspendDriver))
	admin.POST("/drivers/:id/reinstate", h.asAdmin(dispatch.Admin, h.reinstateDriver))
	admin.POST("/drivers/:id/tokens", h.asAdmin(dispatch.Admin, h.issueToken))
	admin.DELETE("/drivers/:id/tokens", h.asAdmin(dispatch.Admin, h.revokeTokens))
	admin.GET("/drivers/:id/devices", h.asAdmin(dispatch.Viewer, h.driverDevices))
	admin.DELETE("/drivers/:id/devices/:installation_id", h.asAdmin(dispatch.Admin, h.removeDevice))
	admin.GET("/drivers/:id/signals", h.asAdmin(dispatch.Admin, h.signals))

	admin.GET("/notifications", h.asAdmin(dispatch.Viewer, h.notifications))
	admin.POST("/notifications/:id/redrive", h.asAdmin(dispatch.Dispatcher, h.redrive))
	admin.GET("/jobs", h.asAdmin(dispatch.Viewer, h.jobs))
	admin.GET("/jobs/:name/runs", h.asAdmin(dispatch.Viewer, h.jobRuns))
	admin.POST("/jobs/:name/run", h.asAdmin(dispatch.Admin, h.runJob))
	admin.GET("/locks", h.asAdmin(dispatch.Viewer, h.locks))
	admin.GET("/api-keys", h.asAdmin(dispatch.Admin, h.listKeys))
	admin.POST("/api-keys", h.asAdmin(dispatch.Admin, h.createKey))
	admin.DELETE("/api-keys/:id", h.asAdmin(dispatch.Admin, h.revokeKey))
	admin.GET("/audit", h.asAdmin(dispatch.Admin, h.audit))
	return e
}
