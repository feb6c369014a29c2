package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/cronjob"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
	"firsttap/internal/auth"
)

// problem is an error answer as in RFC 9457.
type problem struct {
	Type     string                      `json:"type"`
	Title    string                      `json:"title"`
	Status   int                         `json:"status"`
	Detail   string                      `json:"detail"`
	Instance string                      `json:"instance"`
	Code     string                      `json:"code"`
	Errors   []fieldError                `json:"errors,omitempty"`
	Reasons  []dispatch.IneligibleReason `json:"reasons,omitempty"`
	OpensAt  *timestamp                  `json:"opens_at,omitempty"`
	Final    *bool                       `json:"final,omitempty"`
	DriverID any                         `json:"driver_id,omitempty"` // of a taken number: a *string; null if only the request has it twice
}

type fieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// kind is one row of the error table: the status, code and detail that an error is answered with.
type kind struct {
	err    error
	status int
	code   string
	// detail is for the user; if it is empty, the error's own text is sent.
	detail string
}

// kinds is the error table. The first row whose error matches applies; an error without a row is INTERNAL.
var kinds = []kind{
	{dispatch.ErrAlreadyTaken, 409, "ALREADY_TAKEN", ""},
	{dispatch.ErrOfferStale, 409, "OFFER_STALE", "The offer has changed. Look at it again before you accept."},
	{dispatch.ErrDriverBusy, 409, "DRIVER_BUSY", "Work you have accepted overlaps with this in time."},
	{dispatch.ErrNotOpenYet, 409, "NOT_OPEN_YET", ""},
	{dispatch.ErrInvalidState, 409, "INVALID_STATE", ""},
	{dispatch.ErrExpired, 410, "DISPATCH_EXPIRED", "Nobody took the dispatch in time."},
	{dispatch.ErrCanceled, 410, "DISPATCH_CANCELED", "The dispatch was canceled."},
	{dispatch.ErrNotEligible, 403, "NOT_ELIGIBLE", "You can't take this dispatch; see reasons."},
	{dispatch.ErrTooManyWithdrawals, 429, "RATE_LIMITED",
		"You have given back too many dispatches. Try again after Retry-After seconds, or call the office."},
	{dispatch.ErrNotHolder, 403, "FORBIDDEN", "You don't have this dispatch."},
	{dispatch.ErrNotFound, 404, "DISPATCH_NOT_FOUND", "There is no such dispatch, or you may not see it."},
	{dispatch.ErrDriverHasJob, 409, "DRIVER_BUSY", "The driver has a job that is not over. Complete, unassign or cancel it first."},
	{dispatch.ErrDriverErased, 409, "DRIVER_ERASED", "The driver was erased. Register the driver anew."},
	{dispatch.ErrDriverNotFound, 404, "DRIVER_NOT_FOUND", "There is no such driver."},
	{dispatch.ErrNotificationNotFound, 404, "NOTIFICATION_NOT_FOUND", "There is no such notification."},
	{dispatch.ErrNotDead, 409, "INVALID_STATE", ""},
	{cronjob.ErrNotFound, 404, "JOB_NOT_FOUND", "There is no such scheduled job."},
	{dispatch.ErrBadCursor, 400, "MALFORMED_REQUEST", "The cursor is not one that this list has handed out."},
	{dispatch.ErrVersionConflict, 412, "VERSION_MOVED", "The dispatch has changed since that version. Read it again."},
	{dispatch.ErrDriverVersionConflict, 412, "VERSION_MOVED", "The driver has changed since that version. Read it again."},
	{dispatch.ErrKeyNotFound, 404, "KEY_NOT_FOUND", "There is no such key."},
	{dispatch.ErrFirstKey, 409, "INVALID_STATE", ""},
	{webhook.ErrNotFound, 404, "WEBHOOK_NOT_FOUND", "There is no such webhook."},
	{webhook.ErrDeliveryNotFound, 404, "DELIVERY_NOT_FOUND", "The webhook has no such delivery."},
	{webhook.ErrNotAllowed, 422, "ENDPOINT_NOT_ALLOWED", ""},
	{webhook.ErrTooMany, 409, "TOO_MANY_WEBHOOKS", "There are as many webhooks as there may be. Delete one first."},
	{webhook.ErrPaused, 409, "INVALID_STATE", ""},
	{webhook.ErrVersionConflict, 412, "VERSION_MOVED", "The webhook has changed since that version. Read it again."},
	{idempotency.ErrKeyReused, 422, "IDEMPOTENCY_KEY_REUSED", "This Idempotency-Key was sent with another request before. Use a new one."},
	{idempotency.ErrKeyInUse, 409, "IDEMPOTENCY_KEY_IN_USE",
		"A request with this Idempotency-Key is under way. Try again after Retry-After seconds."},
	{dispatch.ErrDuplicateExternalID, 409, "DUPLICATE_EXTERNAL_ID", "A dispatch has this external_id already."},
	{dispatch.ErrDuplicateDriver, 409, "DUPLICATE_FIREBASE_UID", "A driver has this firebase_uid already."},
	{dispatch.ErrDuplicatePhone, 409, "DUPLICATE_PHONE", "Another driver has this phone number already."},
	{errUnknownKey, 401, "UNAUTHENTICATED", "There is no such key, or it was revoked."},
	{auth.ErrUnauthenticated, 401, "UNAUTHENTICATED", "Send a valid Authorization: Bearer header."},
	{errForbidden, 403, "FORBIDDEN", "This key's role does not allow it."},
	{errCrossSite, 403, "FORBIDDEN", "A session is for this service's own pages."},
	{errRateLimited, 429, "RATE_LIMITED", "Too many requests. Try again after Retry-After seconds."},
	{errNoVersion, 428, "PRECONDITION_REQUIRED", `Send If-Match: "<version>" with the version you have seen.`},
	{errInvalid, 422, "VALIDATION_FAILED", "Some fields are not valid; see errors."},
	{errMalformed, 400, "MALFORMED_REQUEST", ""},
	{errTooLarge, 413, "BODY_TOO_LARGE", ""},
	{errMedia, 415, "UNSUPPORTED_MEDIA_TYPE", ""},
	{errSlowBody, 408, "BODY_TIMEOUT", "The body did not arrive in time. Send the request again."},
	{dispatch.ErrInvalidValue, 422, "VALIDATION_FAILED", "The database can't store a value; see errors."},
	{errNoAPI, 503, "UNAVAILABLE", "This instance serves no API. Ask one that has the role api."},
	{dispatch.ErrUnavailable, 503, "UNAVAILABLE", "Not possible at the moment, and nothing was changed. Try again."},
	{dispatch.ErrUnknown, 503, "UNAVAILABLE",
		"It is not known whether this was done. It is safe to try again; a creation with the same Idempotency-Key."},
	{echo.ErrNotFound, 404, "NOT_FOUND", "There is nothing at this address."},
	{echo.ErrMethodNotAllowed, 405, "METHOD_NOT_ALLOWED", "This address does not take this method."},
}

var internal = kind{status: 500, code: "INTERNAL", detail: "Something went wrong on our side."}

var (
	errNoAPI       = errors.New("the instance serves no API")
	errForbidden   = errors.New("the role does not allow it")
	errCrossSite   = errors.New("request from a page of another origin")
	errUnknownKey  = errors.New("no such key")
	errRateLimited = errors.New("too many requests")
	errNoVersion   = errors.New("no If-Match")
	errInvalid     = errors.New("invalid fields")
	errMalformed   = errors.New("malformed request")
	errTooLarge    = errors.New("the body is too large")
	errMedia       = errors.New("the body can't be read")
	errSlowBody    = errors.New("the body did not arrive in time")
	// errHungUp says that the client closed the connection before it had sent the request.
	errHungUp = errors.New("the client has gone")
)

// claimError marks the errors of an accept: there, unavailable and unknown have the code CLAIM_UNAVAILABLE.
type claimError struct{ error }

func (e claimError) Unwrap() error { return e.error }

// bulkError marks the errors of a request for several drivers.
type bulkError struct{ error }

func (e bulkError) Unwrap() error { return e.error }

// retryAfter is the Retry-After of a 503, and of a 429 that does not know better, in seconds.
const retryAfter = 1

// statusHungUp is what a request counts as whose client closed the connection before the answer. Nobody gets it as an answer.
const statusHungUp = 499

// answerError answers a request with a problem. It logs errors with a 5xx status, unless they are due to the client's hanging up, which is
// no fault of the service: each that is a fault of this program, and of those that an outage causes the first. Metrics count the others.
func (h *handler) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := describe(err, c.Request().URL.Path)
	if errors.Is(err, errHungUp) || p.Status >= 500 && hungUp(c.Request().Context()) {
		h.Log.Debug("the client closed the connection before the answer; the request has ended", "path", c.Path(),
			"request_id", requestID(c),
			"error", err)
		c.Response().WriteHeader(statusHungUp)
		return
	}
	if p.Status >= 500 {
		level, message, ctx := slog.LevelError, "request failed", c.Request().Context()
		if p.Status == http.StatusServiceUnavailable {
			if message = "request failed for want of the database; the others that do are logged at debug"; !h.failures.add(h.Log) {
				level = slog.LevelDebug
			}
		}
		h.Log.Log(ctx, level, message, "code", p.Code, "route", c.Path(), "path", c.Request().URL.Path,
			"caller", dispatch.CallerFrom(ctx).Actor,
			"request_id", requestID(c), "error", err)
	}
	if often := (*dispatch.TooManyWithdrawalsError)(nil); errors.As(err, &often) {
		c.Response().Header().Set(echo.HeaderRetryAfter, retryAfterSeconds(often.Wait))
	}
	h.writeProblem(p, c)
}

// hungUp reports whether the request of ctx has ended because its client closed the connection.
func hungUp(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func (h *handler) writeProblem(p problem, c echo.Context) {
	header := c.Response().Header()
	header.Set(echo.HeaderContentType, "application/problem+json")
	switch p.Status {
	case http.StatusServiceUnavailable:
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(retryAfter))
	case http.StatusTooManyRequests:
		if header.Get(echo.HeaderRetryAfter) == "" {
			header.Set(echo.HeaderRetryAfter, strconv.Itoa(retryAfter))
		}
	case http.StatusUnauthorized:
		header.Set(echo.HeaderWWWAuthenticate, "Bearer")
	}
	if err := writeJSON(c, p.Status, p); err != nil {
		h.Log.Debug("answer not delivered to the client", "request_id", requestID(c), "error", err)
	}
}

func describe(err error, path string) problem {
	err = ofField(err)
	i := slices.IndexFunc(kinds, func(k kind) bool { return errors.Is(err, k.err) })
	k := internal
	if i >= 0 {
		k = kinds[i]
	} else if he := (*echo.HTTPError)(nil); errors.As(err, &he) && he.Code < 500 {
		k = kind{status: he.Code, code: "BAD_REQUEST", detail: http.StatusText(he.Code)}
	}
	p := problem{
		Type: "urn:firsttap:problem:" + k.code, Title: http.StatusText(k.status), Status: k.status, Detail: k.detail,
		Instance: path, Code: k.code,
	}
	if p.Detail == "" || errors.As(err, new(assignError)) {
		p.Detail = err.Error()
	}
	if p.Code == "UNAVAILABLE" && errors.As(err, new(claimError)) {
		p.Code, p.Type = "CLAIM_UNAVAILABLE", "urn:firsttap:problem:CLAIM_UNAVAILABLE"
		if errors.Is(err, dispatch.ErrUnknown) {
			p.Detail = "It is not known whether this was done. It is safe to try again."
		}
	}
	p.addExtensions(err)
	return p
}

// ofField turns the error of a rule about one field of a request into an error of that field. It returns other errors as they are.
func ofField(err error) error {
	if wrong, ok := errors.AsType[*dispatch.TimeError](err); ok {
		return invalidField(wrong.Field, wrong.Must)
	}
	switch {
	case errors.Is(err, dispatch.ErrSuspensionInPast):
		return invalidField("until", "must be in the future")
	case errors.Is(err, webhook.ErrNoAddress):
		return invalidField("url", "must have a host that has an address")
	}
	return err
}

func (p *problem) addExtensions(err error) {
	if taken, ok := errors.AsType[*dispatch.TakenError](err); ok {
		p.Final = &taken.Final
	}
	if early, ok := errors.AsType[*dispatch.NotOpenYetError](err); ok {
		p.OpensAt = optionalTimestamp(&early.OpensAt)
	}
	if unfit, ok := errors.AsType[*dispatch.NotEligibleError](err); ok {
		p.Reasons = unfit.Reasons
	}
	if invalid, ok := errors.AsType[*validationError](err); ok {
		p.Errors = invalid.fields
	}
	if phones, ok := errors.AsType[*dispatch.PhoneTakenError](err); ok {
		p.addPhones(phones, errors.As(err, new(bulkError)))
	}
	if value, ok := errors.AsType[*dispatch.InvalidValueError](err); ok && value.Field != "" {
		const why = "can't be stored: it is too long or too large, or has characters that the database does not take"
		p.Errors = []fieldError{{value.Field, why}}
	}
}

// addPhones names the drivers who have the numbers, by the fields of the request.
func (p *problem) addPhones(taken *dispatch.PhoneTakenError, bulk bool) {
	var first dispatch.DriverID
	for _, i := range slices.Sorted(maps.Keys(taken.By)) {
		f, by := fieldError{"phone", "is the number of another of these drivers"}, taken.By[i]
		if by != "" {
			f.Message = "is the number of " + string(by)
			first = cmp.Or(first, by)
		}
		if bulk {
			f.Field = fmt.Sprintf("drivers[%d].phone", i)
		}
		p.Errors = append(p.Errors, f)
	}
	p.DriverID = nullable(string(first))
}

// timestamp is RFC 3339 in UTC with milliseconds.
type timestamp time.Time

// MarshalText implements encoding.TextMarshaler.
func (t timestamp) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z"), nil
}
