// Package handler is the HTTP API: it reads requests strictly, calls the use cases, and answers as openapi.json describes.
package handler

import (
	"cmp"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/webhook"
	"firsttap/internal/auth"
	"firsttap/internal/limit"
	"firsttap/internal/openapi"
	"firsttap/notify/stream"
	"firsttap/service"
	"firsttap/web"
)

// Stores has what is stored as each part of the API needs it. All fields are required.
type Stores struct {
	Answers       answerStore
	Audit         auditStore
	Board         boardStore
	Deliveries    deliveryStore
	Devices       deviceStore
	Dispatches    dispatchStore
	Drivers       driverStore
	Erasure       erasureStore
	Events        eventStore
	Export        exportStore
	ExportAudit   exportAuditStore
	Keys          keyStore
	Notifications notificationStore
	Offers        offerStore
	Profiles      profileStore
	Tokens        tokenStore
	Webhooks      webhookStore
}

// API is everything that the HTTP API depends on. All fields without the word optional are required.
type API struct {
	Stores        Stores
	Acceptor      *service.Acceptor
	DriverService *service.DriverService
	Backoffice    *service.Backoffice
	Tokens        *auth.Tokens
	Keys          *auth.Keys
	Webhooks      *service.Webhooks
	Jobs          Jobs
	// Streams are the live streams that clients open. The caller runs the hub.
	Streams *stream.Hub
	// Revocations end drivers' tokens. The caller runs them, and makes Tokens check them.
	Revocations *auth.Revocations
	// Roles are what the instance does, as GET /readyz shows them.
	Roles []string
	// DatabaseUp reports whether the database takes writes, without a statement. Optional: without it, it is up.
	DatabaseUp func() bool
	// RedisDegraded reports whether Redis can't be reached. Optional: without it, no Redis is configured.
	RedisDegraded func() bool
	// JobsBlocked reports whether a job can't run because its lock gives no answer. Optional.
	JobsBlocked func() bool
	// Draining reports whether the instance is about to stop. Optional.
	Draining func() bool
	// OnDue is called when an admin has made a notification or a webhook due. Optional.
	OnDue func()
	// ObserveRequest is called after every request: with its route as a pattern, "" where there is none, and how long the answer
	// took. It must be safe for concurrent use. Optional.
	ObserveRequest func(method, route string, status int, took time.Duration)
	// DriverRate and AdminRate limit callers at this instance alone. DriverLimit and AdminLimit replace them; optional.
	DriverRate, AdminRate   limit.Rate
	DriverLimit, AdminLimit *limit.Limiter
	// SignIns limits failed sign-ins; the caller runs it. Optional: without it the usual limits hold, without audit or metrics.
	SignIns *auth.SignIns
	// SessionSecret seals session cookies; it is the same on every instance. Optional: without it sessions are good at this
	// instance only, and until it stops.
	SessionSecret []byte
	// PreviousSecrets open the cookies that were sealed before SessionSecret was replaced. Optional.
	PreviousSecrets [][]byte
	// AllowedOrigins are the origins of other pages, such as those of hybrid apps, whose scripts may call the driver API. Optional.
	AllowedOrigins []string
	// Zone is that of the sites. Optional: UTC without it.
	Zone *time.Location
	// Firebase lets drivers sign in without a token of this service. Optional.
	Firebase *FirebaseSignIn
	Now      func() time.Time
	Log      *slog.Logger
	// Version is the service's, for the OpenAPI document. Optional.
	Version string

	// patience is the least time for storing an answer to an Idempotency-Key. Tests on a busy machine have more than the usual 5 s.
	patience time.Duration
}

// check panics if a required field is missing.
func (a *API) check() {
	v, stores := reflect.ValueOf(*a), reflect.ValueOf(a.Stores)
	for _, name := range []string{
		"Acceptor", "DriverService", "Backoffice", "Tokens", "Keys", "Webhooks", "Jobs", "Streams", "Revocations", "Now", "Log",
	} {
		refuseNil(name, v.FieldByName(name))
	}
	for f, store := range stores.Fields() {
		refuseNil("Stores."+f.Name, store)
	}
}

func refuseNil(name string, field reflect.Value) {
	if field.IsNil() {
		panic("handler: API." + name + " is missing")
	}
}

// setDefaults replaces the optional functions and limits that are nil.
func (a *API) setDefaults() {
	never := func() bool { return false }
	a.Zone = cmp.Or(a.Zone, time.UTC)
	if a.DatabaseUp == nil {
		a.DatabaseUp = func() bool { return true }
	}
	if a.JobsBlocked == nil {
		a.JobsBlocked = never
	}
	if a.Draining == nil {
		a.Draining = never
	}
	if a.OnDue == nil {
		a.OnDue = func() {}
	}
	if a.ObserveRequest == nil {
		a.ObserveRequest = func(string, string, int, time.Duration) {}
	}
	a.DriverLimit = cmp.Or(a.DriverLimit, limit.New(a.DriverRate.Options()))
	a.AdminLimit = cmp.Or(a.AdminLimit, limit.New(a.AdminRate.Options()))
	if a.SignIns == nil {
		a.SignIns = auth.NewSignIns(auth.SignInOptions{Limits: auth.DefaultSignInLimits(), Now: a.Now, Log: a.Log})
	}
}

type handler struct {
	API
	// queries has the names of the query parameters that a route takes, by method and pattern.
	queries  map[string][]string
	sessions *sessions
	// lists, searches, previews and exports are turns of admins' reads; entries are turns to write that a key has signed in.
	lists, searches, previews, exports, entries *turns
	taken                                       takenAnswers
	failures                                    failures
}

// New returns the API, ready to serve. It panics if a required field is missing.
func New(api API) *echo.Echo {
	api.check()
	api.setDefaults()
	h := &handler{
		API: api, queries: openapi.QueryParameters(), sessions: newSessions(api.SessionSecret, api.PreviousSecrets...),
		taken: newTakenAnswers(),
		lists: newTurns(listsAtOnce, listsWaiting), searches: newTurns(searchesAtOnce, searchesWaiting),
		previews: newTurns(searchesAtOnce, searchesWaiting), exports: newTurns(1, searchesWaiting),
		entries: newTurns(entriesAtOnce, listsWaiting),
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = h.answerError
	e.Use(securityHeaders(), h.observe, crossOrigin(api.AllowedOrigins), boundBodies())

	get(e, "/livez", livez)
	get(e, "/readyz", h.readyz)
	docs(e, api.Version)
	pages(e, map[string]string{
		"assets": web.Policy(), "console": web.Policy(), "driver": web.Policy(api.Firebase.hosts()...),
	})

	e.GET("/v1/sign-in", signInOptions(api.Zone, api.Firebase), h.strictQuery)
	e.POST(signInPath, h.signIn, h.strictQuery)
	e.GET("/v1/session", h.getSession)
	e.DELETE("/v1/session", h.signOut, h.strictQuery)

	v1 := e.Group("/v1")
	v1.GET("/me", h.asDriver(h.me))
	v1.PUT("/me/duty", h.asDriver(h.setDuty))
	v1.PUT("/me/devices/:installation_id", h.asDriver(h.putDevice))
	v1.DELETE("/me/devices/:installation_id", h.asDriver(h.deleteDevice))
	v1.GET("/me/offers", h.asDriver(h.offers))
	v1.GET("/me/dispatches", h.asDriver(h.myDispatches))
	v1.GET("/me/dispatches/:id/claim", h.asDriver(on(dispatch.ParseID, h.receipt)))
	v1.GET("/stream", h.asDriver(h.driverStream))
	v1.GET("/dispatches/:id", h.asDriver(on(dispatch.ParseID, h.getOffer)))
	v1.POST("/dispatches/:id/accept", h.accept)
	v1.POST("/dispatches/:id/seen", h.asDriver(on(dispatch.ParseID, h.seen)))
	v1.POST("/dispatches/:id/decline", h.asDriver(on(dispatch.ParseID, h.decline)))
	v1.POST("/dispatches/:id/withdraw", h.asDriver(on(dispatch.ParseID, h.withdraw)))
	v1.POST("/dispatches/:id/start", h.asDriver(on(dispatch.ParseID, h.start)))
	v1.POST("/dispatches/:id/complete", h.asDriver(on(dispatch.ParseID, h.complete)))

	admin := v1.Group("/admin")
	admin.GET("/board", h.asAdmin(dispatch.Viewer, h.inTurn(h.board)))
	admin.GET("/supply", h.asAdmin(dispatch.Viewer, h.inTurn(h.supply)))
	admin.GET("/stream", h.asAdmin(dispatch.Viewer, h.adminStream))

	admin.POST("/dispatches", h.asAdmin(dispatch.Dispatcher, h.createDispatch))
	admin.POST("/dispatches/preview", h.asAdmin(dispatch.Dispatcher, h.previewDispatch))
	admin.GET("/dispatches", h.asAdmin(dispatch.Viewer, h.inTurn(h.listDispatches)), compressed())
	admin.GET("/dispatches/:id", h.asAdmin(dispatch.Viewer, on(dispatch.ParseID, h.getDispatch)))
	admin.PATCH("/dispatches/:id", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseID, h.patchDispatch)))
	admin.POST("/dispatches/:id/cancel", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseID, h.cancelDispatch)))
	admin.POST("/dispatches/:id/reopen", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseID, h.reopenDispatch)))
	admin.POST("/dispatches/:id/extend", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseID, h.extendDispatch)))
	admin.POST("/dispatches/:id/assign", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseID, h.assignDispatch)))
	admin.POST("/dispatches/:id/unassign", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseID, h.unassignDispatch)))
	admin.GET("/dispatches/:id/offers", h.asAdmin(dispatch.Viewer, h.inTurn(on(dispatch.ParseID, h.dispatchOffers))))
	admin.GET("/dispatches/:id/attempts", h.asAdmin(dispatch.Viewer, h.inTurn(on(dispatch.ParseID, h.attempts))))
	admin.GET("/dispatches/:id/events", h.asAdmin(dispatch.Viewer, h.inTurn(on(dispatch.ParseID, h.dispatchEvents))))
	admin.GET("/dispatches/:id/notifications", h.asAdmin(dispatch.Viewer, h.inTurn(on(dispatch.ParseID, h.dispatchNotifications))))

	admin.POST("/drivers", h.asAdmin(dispatch.Admin, h.createDriver))
	e.POST(bulkPath, h.asAdmin(dispatch.Admin, h.addDrivers))
	admin.GET("/drivers", h.asAdmin(dispatch.Viewer, h.inTurn(h.listDrivers)))
	admin.GET("/drivers/:id", h.asAdmin(dispatch.Viewer, on(dispatch.ParseDriverID, h.getDriver)))
	admin.PATCH("/drivers/:id", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.patchDriver)))
	admin.POST("/drivers/:id/suspend", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.suspendDriver)))
	admin.POST("/drivers/:id/reinstate", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.reinstateDriver)))
	admin.POST("/drivers/:id/erase", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.eraseDriver)))
	admin.GET("/drivers/:id/export", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.exportDriver)))
	admin.POST("/drivers/:id/tokens", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.issueToken)))
	admin.DELETE("/drivers/:id/tokens", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.revokeTokens)))
	admin.GET("/drivers/:id/devices", h.asAdmin(dispatch.Viewer, h.inTurn(on(dispatch.ParseDriverID, h.driverDevices))))
	admin.DELETE("/drivers/:id/devices/:installation_id", h.asAdmin(dispatch.Admin, on(dispatch.ParseDriverID, h.removeDevice)))
	admin.GET("/drivers/:id/signals", h.asAdmin(dispatch.Admin, h.inTurn(on(dispatch.ParseDriverID, h.signals))))

	admin.GET("/notifications", h.asAdmin(dispatch.Viewer, h.inTurn(h.notifications)))
	admin.POST("/notifications/:id/redrive", h.asAdmin(dispatch.Dispatcher, on(dispatch.ParseNotificationID, h.redrive)))
	admin.GET("/jobs", h.asAdmin(dispatch.Viewer, h.inTurn(h.jobs)))
	admin.GET("/jobs/:name/runs", h.asAdmin(dispatch.Viewer, h.inTurn(h.jobRuns)))
	admin.POST("/jobs/:name/run", h.asAdmin(dispatch.Admin, h.runJob))
	admin.GET("/locks", h.asAdmin(dispatch.Viewer, h.inTurn(h.locks)))
	admin.GET("/api-keys", h.asAdmin(dispatch.Admin, h.inTurn(h.listKeys)))
	admin.POST("/api-keys", h.asAdmin(dispatch.Admin, h.createKey))
	admin.DELETE("/api-keys/:id", h.asAdmin(dispatch.Admin, on(parseKeyID, h.revokeKey)))
	admin.POST("/webhooks", h.asAdmin(dispatch.Admin, h.createWebhook))
	admin.GET("/webhooks", h.asAdmin(dispatch.Admin, h.inTurn(h.listWebhooks)))
	admin.GET("/webhooks/:id", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.getWebhook)))
	admin.PATCH("/webhooks/:id", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.patchWebhook)))
	admin.DELETE("/webhooks/:id", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.deleteWebhook)))
	admin.POST("/webhooks/:id/rotate", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.rotateWebhook)))
	admin.POST("/webhooks/:id/test", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.testWebhook)))
	admin.POST("/webhooks/:id/replay", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.replayWebhook)))
	admin.GET("/webhooks/:id/deliveries", h.asAdmin(dispatch.Admin, h.inTurn(on(webhook.ParseID, h.listDeliveries))))
	admin.POST("/webhooks/:id/deliveries/:delivery_id/resend", h.asAdmin(dispatch.Admin, on(webhook.ParseID, h.resendDelivery)))
	admin.GET("/audit", h.asAdmin(dispatch.Admin, h.inTurn(h.audit)))
	return e
}

const (
	// bulkPath is the one route that takes a body of maxBulkBody, and signInPath the one that reads a body before it knows the caller.
	bulkPath   = "/v1/admin/drivers/bulk"
	signInPath = "/v1/session"
)

// get answers GET and HEAD at path with h. For HEAD net/http sends the headers only.
func get(e *echo.Echo, path string, h echo.HandlerFunc) {
	e.Match([]string{http.MethodGet, http.MethodHead}, path, h)
}
