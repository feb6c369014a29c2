package main

// knows lists what each package may import of this module. A package that is not listed fails the test. Tests may import
// more: they are not checked.
var knows = map[string][]string{
	"": {"internal/app", "internal/config"},
	"internal/app": {
		"dispatch", "dispatch/cronjob", "dispatch/outbox", "handler", "internal/auth", "internal/config", "internal/demo",
		"internal/doctor", "internal/doctor/dbcheck", "internal/firebase", "internal/limit", "internal/redisclient",
		"internal/telemetry", "loadtest", "lock", "migrations", "notify", "notify/fcm", "notify/stream", "notify/webhooks",
		"repository", "repository/database", "repository/pushes", "schedule", "service",
	},
	"internal/config":      {"internal/limit", "internal/redisclient", "repository/database", "repository/retention"},
	"internal/telemetry":   {"dispatch", "internal/auth", "lock", "internal/redisclient", "repository", "repository/database", "service"},
	"internal/demo":        {"internal/config", "loadtest", "internal/telemetry"},
	"dispatch":             {},
	"dispatch/cronjob":     {},
	"internal/doctor":      {},
	"dispatch/idempotency": {"dispatch"},
	"dispatch/outbox":      {"dispatch"},
	"migrations":           {},
	"internal/doctor/dbcheck": {
		"dispatch", "internal/doctor", "migrations", "repository/database", "repository/dispatches", "repository/keys",
		"repository/primary",
	},
	"repository": {
		"dispatch", "repository/board", "repository/database", "repository/devices", "repository/dispatches", "repository/drivers",
		"repository/due", "repository/export", "repository/journal", "repository/keys", "repository/offers", "repository/poll",
		"repository/pushes", "repository/retention", "repository/runs", "repository/topics", "repository/webhooks",
	},
	"repository/primary":  {},
	"repository/database": {"dispatch", "migrations", "repository/primary"},
	"repository/search":   {"dispatch", "repository/database"},
	"repository/poll":     {"dispatch/outbox", "repository/database", "repository/primary"},
	"repository/journal":  {"dispatch", "dispatch/idempotency", "repository/database"},
	"repository/keys":     {"dispatch", "dispatch/idempotency", "repository/database", "repository/journal"},
	"repository/topics":   {"dispatch", "dispatch/outbox", "repository/database"},
	"repository/devices":  {"dispatch", "dispatch/outbox", "repository/database", "repository/journal", "repository/topics"},
	"repository/drivers": {
		"dispatch", "migrations", "repository/database", "repository/devices", "repository/journal", "repository/search",
	},
	"repository/dispatches": {
		"dispatch", "dispatch/idempotency", "migrations", "repository/database", "repository/drivers", "repository/journal",
		"repository/primary", "repository/search",
	},
	"repository/due": {"dispatch", "repository/database", "repository/dispatches", "repository/poll"},
	"repository/pushes": {
		"dispatch", "dispatch/outbox", "repository/database", "repository/dispatches", "repository/drivers", "repository/journal",
		"repository/topics",
	},
	"repository/offers": {"dispatch", "dispatch/outbox", "repository/database", "repository/dispatches", "repository/pushes"},
	"repository/webhooks": {
		"dispatch", "dispatch/idempotency", "dispatch/outbox", "dispatch/webhook", "repository/database", "repository/dispatches",
		"repository/journal", "repository/poll",
	},
	"repository/runs": {
		"dispatch", "dispatch/cronjob", "dispatch/idempotency", "repository/database", "repository/journal", "repository/poll",
		"repository/primary",
	},
	"repository/board": {
		"dispatch/cronjob", "dispatch", "repository/database", "repository/drivers", "repository/offers", "repository/runs",
	},
	"repository/export": {
		"dispatch", "dispatch/outbox", "repository/database", "repository/dispatches", "repository/drivers", "repository/journal",
		"repository/offers", "repository/pushes",
	},
	"repository/retention": {
		"dispatch", "repository/database", "repository/dispatches", "repository/pushes", "repository/runs", "repository/topics",
		"repository/webhooks",
	},
	"internal/auth":     {"dispatch", "dispatch/idempotency", "internal/limit"},
	"internal/firebase": {"dispatch", "internal/auth"},
	"service":           {"dispatch", "dispatch/idempotency", "lock", "dispatch/webhook"},
	"handler": {
		"dispatch", "dispatch/cronjob", "dispatch/idempotency", "dispatch/outbox", "dispatch/webhook", "internal/auth",
		"internal/limit", "internal/openapi", "notify/stream", "service", "web", "web/asset",
	},
	"web/asset":                    {},
	"web":                          {"web/asset"},
	"internal/openapi":             {"web/asset"},
	"internal/openapi/generate":    {},
	"internal/limit":               {},
	"dispatch/webhook":             {"dispatch"},
	"internal/redisclient":         {"internal/doctor"},
	"lock":                         {},
	"lock/locktest":                {"lock", "internal/testkit"},
	"schedule":                     {"dispatch/cronjob", "dispatch", "lock"},
	"notify":                       {"dispatch", "notify/wakeup", "dispatch/outbox"},
	"notify/fcm":                   {"dispatch", "notify", "dispatch/outbox"},
	"notify/stream":                {"dispatch", "notify/wakeup"},
	"notify/wakeup":                {},
	"notify/webhooks":              {"notify/wakeup", "dispatch/outbox", "dispatch/webhook"},
	"notify/fcmtest":               {},
	"notify/fcmsim":                {"notify/fcmtest"},
	"loadtest":                     {},
	"loadtest/bench":               {"notify/fcmtest", "internal/servertest"},
	"internal/servertest":          {"internal/testkit"},
	"internal/servertest/with":     {"internal/servertest"},
	"internal/servertest/promises": {},
	"internal/testkit":             {},
	"systemtest": {
		"internal/config", "internal/servertest", "internal/testkit", "notify/fcmtest", "repository/repositorytest",
	},

	// The bench of all rooms' tests knows them all.
	"repository/repositorytest": {
		"dispatch", "dispatch/cronjob", "dispatch/idempotency", "dispatch/outbox", "dispatch/webhook", "internal/servertest",
		"internal/testkit", "migrations", "repository", "repository/board", "repository/database", "repository/devices",
		"repository/dispatches", "repository/drivers", "repository/due", "repository/export", "repository/journal", "repository/keys",
		"repository/offers", "repository/poll", "repository/pushes", "repository/retention", "repository/runs", "repository/search",
		"repository/topics", "repository/webhooks",
	},
}

// uses lists which packages may import a framework. loadtest/bench may import all of them.
var uses = map[string][]string{
	"gorm.io/":             {"repository/database"},
	"github.com/glebarez/": {"repository/database"},
	"github.com/go-sql-driver/": {
		"internal/doctor/dbcheck", "internal/servertest", "lock", "migrations", "repository/database", "repository/primary",
		"repository/repositorytest", "systemtest",
	},
	"github.com/labstack/echo/":  {"handler"},
	"github.com/go-json-exper":   {"handler"},
	"github.com/redis/go-redis/": {"internal/limit", "lock", "notify/stream", "internal/redisclient", "internal/servertest"},
	"firebase.google.com/":       {"notify/fcm"},
	"github.com/prometheus/": {
		"internal/app", "internal/firebase", "internal/limit", "internal/telemetry", "lock", "notify", "notify/stream",
		"notify/webhooks", "schedule",
	},
	"code.dny.dev/ssrf":         {"notify/webhooks"},
	"github.com/standard-":      {"notify/webhooks"},
	"go.opentelemetry.io/":      {"internal/telemetry"},
	"github.com/pressly/goose/": {"migrations"},
	"github.com/golang-jwt/":    {"internal/auth", "internal/firebase"},
	"go.yaml.in/":               {"internal/openapi/generate"},
	"testing":                   {"internal/servertest", "lock/locktest", "repository/repositorytest", "systemtest", "internal/testkit"},
}

// owners are the rooms that write a table. A queue has one that adds rows and one that takes them. The retention deletes rows of any.
var owners = map[string][]string{
	"api_keys": {"keys"}, "audit": {"journal"}, "claims": {"dispatches"}, "devices": {"devices"}, "dispatch_words": {"dispatches"},
	"dispatches": {"dispatches"}, "driver_counts": {"drivers"}, "driver_regions": {"drivers"}, "driver_words": {"drivers"},
	"drivers": {"drivers"}, "events": {"journal", "pushes"}, "expansions": {"pushes"}, "idempotency_keys": {"journal"},
	"job_runs": {"runs"}, "jobs": {"runs"}, "notifications": {"pushes"}, "offers": {"offers"}, "supply": {"board"}, "taps": {"offers"},
	"topic_members": {"topics"}, "topics": {"topics"}, "webhook_deliveries": {"webhooks"}, "webhook_events": {"journal", "webhooks"},
	"webhooks": {"webhooks"},
}

// exceptions are the writes of a table by another room than its owner, with the reason.
var exceptions = map[string]string{
	"dispatches events":         "the claim's event is written by the procedure, and the row that bars a lost one by the room that settles it",
	"dispatches webhook_events": "the claim's procedure writes what the journal writes",
	"retention drivers":         "a driver's version grows when the newest claim is deleted",
	"database shedlock":         "the probe's row is nobody's lock",
	"database dispatches":       "the probe changes no row: it finds out whether the tables can be changed",
}
