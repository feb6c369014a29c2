package dispatch

import (
	"context"
	"time"
)

// AuditAction names an audited change, or a sign-in. The changes of a dispatch are its events.
type AuditAction string

// The actions.
const (
	AuditDriverCreate      AuditAction = "driver.create"
	AuditDriverUpdate      AuditAction = "driver.update"
	AuditDriverSuspend     AuditAction = "driver.suspend"
	AuditDriverReinstate   AuditAction = "driver.reinstate"
	AuditDriverToken       AuditAction = "driver.token"
	AuditTokensRevoke      AuditAction = "driver.tokens_revoke"
	AuditDriverErase       AuditAction = "driver.erase"
	AuditDriverExport      AuditAction = "driver.export"
	AuditDriversBulk       AuditAction = "drivers.bulk"
	AuditDuty              AuditAction = "driver.duty" // by the driver
	AuditDevicePut         AuditAction = "device.put"
	AuditDeviceDelete      AuditAction = "device.delete"
	AuditKeyCreate         AuditAction = "key.create"
	AuditKeyRevoke         AuditAction = "key.revoke"
	AuditSecretChange      AuditAction = "secret.change" // by the start of an instance
	AuditSecretRefuse      AuditAction = "secret.refuse"
	AuditNotificationRetry AuditAction = "notification.redrive"
	AuditJobRun            AuditAction = "job.run"
	AuditWebhookCreate     AuditAction = "webhook.create"
	AuditWebhookUpdate     AuditAction = "webhook.update"
	AuditWebhookDelete     AuditAction = "webhook.delete"
	AuditWebhookRotate     AuditAction = "webhook.rotate"
	AuditWebhookTest       AuditAction = "webhook.test"
	AuditWebhookResend     AuditAction = "webhook.resend"
	AuditWebhookReplay     AuditAction = "webhook.replay"
	AuditSignIn            AuditAction = "session.create"
	AuditSignInRefused     AuditAction = "session.refuse"
	AuditTargetDrivers                 = "drivers" // the target of a bulk change
	AuditUnknown                       = "unknown" // the actor of a failed sign-in
)

// AuditEntry records an audited change, in the transaction that makes it.
type AuditEntry struct {
	ID      string // aud_...
	At      time.Time
	Actor   string
	Request string
	Action  AuditAction
	Target  string // the identifier or name of the changed object
	Detail  string // a JSON object without secrets; a changed field has {"from", "to"}, or "changed" if its values are personal
}

// MinAuditID returns the smallest identifier that an entry made at that time can have.
func MinAuditID(at time.Time) string { return smallest(AuditPrefix, at) }

// RefusedSignIns counts the failed sign-ins from an address: with wrong credentials, beyond the limit, and of both per kind of
// credentials.
type RefusedSignIns struct {
	Address         string
	Failed, Limited int
	ByMethod        map[string]int
}

// AuditQuery selects audit entries for a list.
type AuditQuery struct {
	Target string // "" for any
	Actor  string // "" for any
	Page
}

// Caller identifies a request and its sender. It travels in the request's context, and is stored with every change that the
// request makes.
type Caller struct {
	Actor   string // a driver's or a key's identifier
	Request string
	App     string // the version of the driver's app, "" where unknown
}

type callerKey struct{}

// WithCaller returns a context with the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return &callerContext{ctx, c}
}

// callerContext is one allocation, where context.WithValue makes two.
type callerContext struct {
	context.Context
	caller Caller
}

// Value implements context.Context.
func (c *callerContext) Value(key any) any {
	if key == (callerKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// CallerFrom returns the context's caller; without one, System and no request.
func CallerFrom(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(*callerContext); ok {
		return c.caller
	}
	return Caller{Actor: System}
}
