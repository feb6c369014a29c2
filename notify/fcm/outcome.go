package fcm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"cloud.google.com/go/auth"

	"firsttap/notify"
)

const (
	maxReason = 200 // bytes
	// maxRetryAfter keeps a faulty push service from stopping all pushes for a day.
	maxRetryAfter = time.Hour
	// unreadableAnswer begins the reason of an Unsure outcome after a status of success.
	unreadableAnswer = "accepted, but the answer can't be read: "
)

// outcome returns the outcome of the attempt, given the SDK's error. It relies on what the transport saw: the SDK keeps
// only the text of a connection's error, and its predicates don't show what the SDK itself refused.
func (a *attempt) outcome(err error, now time.Time) notify.Outcome {
	switch {
	case err == nil:
		return notify.Outcome{Class: notify.Sent}
	case a.err != nil:
		return notify.Outcome{Class: a.unanswered(), Reason: a.err.Error()}
	case a.status == 0:
		return notify.Outcome{Class: notify.Poison, Reason: "not sent: " + err.Error()}
	case a.status < http.StatusMultipleChoices:
		return notify.Outcome{Class: notify.Unsure, Reason: unreadableAnswer + err.Error()}
	}
	r := readRefusal(a.body)
	return notify.Outcome{Class: r.class(a.status), RetryAfter: retryAfter(a.header, now), Reason: r.reason(a.status)}
}

func (a *attempt) unanswered() notify.Class {
	var own credentialsError
	switch {
	case errors.As(a.err, &own) && credentialsRefused(own):
		return notify.Auth
	case !a.connected.Load():
		return notify.Unreached
	}
	return notify.Unsure
}

// credentialsRefused reports whether err, of a request for an access token, is the fault of the credentials and not of a
// token service that is busy or unreachable.
func credentialsRefused(err error) bool {
	var answered *auth.Error
	if errors.As(err, &answered) && answered.Response != nil {
		switch status := answered.Response.StatusCode; status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests:
			return false
		default:
			return status < http.StatusInternalServerError
		}
	}
	var network net.Error
	return !errors.As(err, &network) && !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// refusal is the body of an error answer.
type refusal struct {
	Status  string
	Message string
	Details []struct {
		Type       string `json:"@type"`
		Code       string `json:"errorCode"`
		Violations []struct {
			Field       string `json:"field"`
			Description string `json:"description"`
		} `json:"fieldViolations"`
	}
	fromFCM bool // the body has the form of the push service's errors
}

const fcmErrorType = "type.googleapis.com/google.firebase.fcm.v1.FcmError"

// readRefusal reads an error of FCM, {"error": {...}}, or of the topics' service, {"error": "..."}. Any other body, such as
// a proxy's, becomes the message, unless it is HTML.
func readRefusal(body []byte) (r refusal) {
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(body, &outer); err != nil || len(outer.Error) == 0 {
		if text := strings.TrimSpace(string(body)); !strings.HasPrefix(text, "<") {
			r.Message = text
		}
		return r
	}
	if err := json.Unmarshal(outer.Error, &r); err == nil {
		r.fromFCM = r.Status != ""
		return r
	}
	r = refusal{}
	r.fromFCM = json.Unmarshal(outer.Error, &r.Message) == nil && r.Message != ""
	return r
}

// code returns FCM's own error code, "" without one.
func (r *refusal) code() string {
	for _, d := range r.Details {
		if d.Type == fcmErrorType {
			return d.Code
		}
	}
	return ""
}

// blamesToken reports whether the invalid argument is the registration token.
func (r *refusal) blamesToken() bool {
	named := false
	for _, d := range r.Details {
		for _, v := range d.Violations {
			if v.Field == "message.token" {
				return true
			}
			named = named || v.Field != "" && v.Field != "message"
		}
	}
	return !named && strings.Contains(strings.ToLower(r.Message), "registration token")
}

func (r *refusal) class(status int) notify.Class {
	switch status {
	case http.StatusBadRequest:
		switch {
		case !r.fromFCM: // a proxy or another server, which did not judge the payload
			return notify.Unsure
		case r.blamesToken():
			return notify.BadToken
		}
		return notify.Poison
	case http.StatusRequestEntityTooLarge:
		return notify.Poison
	case http.StatusUnauthorized:
		switch r.code() {
		case "THIRD_PARTY_AUTH_ERROR", "APNS_AUTH_ERROR":
			return notify.PlatformAuth
		}
		return notify.Auth
	case http.StatusForbidden:
		if r.code() == "SENDER_ID_MISMATCH" {
			return notify.WrongSender
		}
		return notify.Auth
	case http.StatusNotFound:
		if r.code() == "UNREGISTERED" {
			return notify.DeadToken
		}
		return notify.Auth // the project does not exist, or the endpoint is not FCM
	case http.StatusTooManyRequests:
		return notify.Quota
	case http.StatusServiceUnavailable:
		return notify.Unavailable
	}
	return notify.Unsure
}

func (r *refusal) reason(status int) string {
	words := []string{strconv.Itoa(status)}
	switch code := r.code(); {
	case code != "":
		words = append(words, code)
	case r.Status != "":
		words = append(words, r.Status)
	default:
		words = append(words, http.StatusText(status))
	}
	reason := strings.Join(words, " ")
	if r.Message != "" {
		reason += ": " + r.Message
	}
	for _, d := range r.Details {
		for _, v := range d.Violations {
			reason += fmt.Sprintf(" (%s: %s)", v.Field, v.Description)
		}
	}
	return reason
}

// retryAfter reads the header Retry-After, seconds or a date. It returns 0 for a value in the past or unreadable.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// forTopic replaces the classes that blame a token, as a push to a topic has none.
func forTopic(c notify.Class) notify.Class {
	switch c {
	case notify.DeadToken, notify.BadToken:
		return notify.Poison
	case notify.WrongSender:
		return notify.Auth
	}
	return c
}

// cleanReason returns s for operators: one short line, with the tokens masked.
func cleanReason(s string, tokens ...string) string {
	for _, t := range tokens {
		if t != "" {
			s = strings.ReplaceAll(s, t, notify.MaskToken(t))
		}
	}
	return clip(oneLine(s), maxReason)
}

// oneLine returns s as valid UTF-8 without control characters, with single blanks as white space.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r // U+FFFD for invalid UTF-8
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

const ellipsis = "…"

// clip returns s in at most n bytes, with an ellipsis if it was cut.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len(ellipsis)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + ellipsis
}
