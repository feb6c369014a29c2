package dispatch

import (
	"context"
	"time"
)

// AuditAction names a change that is no event of a dispatch, or a sign-in.
type AuditAction string

// The actions.
const (
	AuditDriverCreate      AuditAction = "driver.create"
	AuditDriverUpdate      AuditAction = "driver.update"
	AuditDriverSuspend     AuditAction = "driver.suspend"
	AuditDriverReinstate   AuditAction = "driver.reinstate"
	AuditDriverToken       AuditAction = "driver.token"
	AuditTokensRevoke      AuditAction = "driver.tokens_revoke"
	AuditDriversBulk       AuditAction = "drivers.bulk"
	AuditDuty              AuditAction = "driver.duty" // by the driver
	AuditDevicePut         AuditAction = "device.put"
	AuditDeviceDelete      AuditAction = "device.delete"
	AuditKeyCreate         AuditAction = "key.create"
	AuditKeyRevoke         AuditAction = "key.revoke"
	AuditNotificationRetry AuditAction = "notification.redrive"
	AuditJobRun            AuditAction = "job.run"
	AuditSignIn            AuditAction = "session.create"
	AuditSignInRefused     AuditAction = "session.refuse"
	AuditTargetDrivers                 = "drivers" // the target of what is done to many
	AuditUnknown                       = "unknown" // the actor where nobody knows who it was
)

// AuditEntry is one such change. It is written in the transaction that made it.
type AuditEntry struct {
	ID      string // aud_...
	At      time.Time
	Actor   string
	Request string
	Action  AuditAction
	Target  string // the identifier or name of what was changed
	Detail  string // a JSON object, without secrets: fields that changed have {"from", "to"}
}

// FirstAuditID returns the smallest identifier that an entry made at that time can have.
func FirstAuditID(at time.Time) string { return smallest(AuditPrefix, at) }

// Refusals are how often it was tried in vain to sign in from an address: looked at and found wrong, or at the limit, and how
// often at which door.
type Refusals struct {
	Address         string
	Failed, Limited int
	Doors           map[string]int
}

// AuditQuery selects audit entries for a list.
type AuditQuery struct {
	Target string // "" for any
	Actor  string // "" for any
	Page
}

// Caller is who asks for something, and in which request. It travels with the request's context, and is written down with
// whatever the request changes.
type Caller struct {
	Actor   string // a driver's or a key's identifier
	Request string
	App     string // the version that the driver's app says it is, "" if it does not
}

type callerKey struct{}

// WithCaller returns a context of that caller's request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns whose request the context is of; System's, and no request, if nobody's.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Caller{Actor: System}
}
