package fcmtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Knobs are the faults of the service. The zero value is a healthy service without latency. A share is between 0 and 1.
type Knobs struct {
	// Latency is the time from a request to its answer, plus up to Jitter. It applies to errors and to topic calls too.
	Latency, Jitter time.Duration

	// Status is the error status, 400 to 599, of every answer to a send; 0: healthy. For 400, 401, 403, 404, 429, 500 and
	// 503 the body is FCM's, for the others a page of HTML such as a proxy's.
	Status int
	// ErrorCode is the FcmError's errorCode: "" for the usual one of Status (THIRD_PARTY_AUTH_ERROR for 401,
	// SENDER_ID_MISMATCH for 403), "-" for no FcmError: plain UNAUTHENTICATED for 401, plain PERMISSION_DENIED for 403.
	ErrorCode string
	// RetryAfter is the header of that name with Status, TopicStatus and quota errors: seconds or an HTTP date.
	RetryAfter string
	// Rate is the share of sends that Status applies to; 0 means all.
	Rate float64

	// Hang leaves every request unanswered and not accepted, until its client goes or the server is closed.
	Hang bool
	// Drop is the share of sends that are not accepted and whose connection is cut without an answer.
	Drop float64
	// DropAfterAccept is the share of sends that are accepted and whose connection is cut without an answer.
	DropAfterAccept float64
	// HangAfterAccept is the share of sends that are accepted and left unanswered.
	HangAfterAccept float64
	// BadJSON is the share of sends that are accepted and answered 200 with an unreadable body.
	BadJSON float64

	// QuotaPerMinute and QuotaPerSecond are how many sends are accepted in a window, which begins with its first send; 0:
	// no quota. The others are answered 429, with a Retry-After until the window ends unless RetryAfter is set.
	QuotaPerMinute, QuotaPerSecond int

	// TopicStatus is the error status of every answer to a topic call; 0: healthy.
	TopicStatus int
}

// Validate returns an error that names all invalid knobs.
func (k *Knobs) Validate() error {
	var wrong []error
	for name, status := range map[string]int{"Status": k.Status, "TopicStatus": k.TopicStatus} {
		if status != 0 && (status < http.StatusBadRequest || status > 599) {
			wrong = append(wrong, fmt.Errorf("%s %d is not an error status", name, status))
		}
	}
	for name, share := range map[string]float64{
		"Rate": k.Rate, "Drop": k.Drop, "DropAfterAccept": k.DropAfterAccept,
		"HangAfterAccept": k.HangAfterAccept, "BadJSON": k.BadJSON,
	} {
		if !(share >= 0 && share <= 1) { // nor is NaN
			wrong = append(wrong, fmt.Errorf("%s %v is not between 0 and 1", name, share))
		}
	}
	if k.Latency < 0 || k.Jitter < 0 || k.QuotaPerMinute < 0 || k.QuotaPerSecond < 0 {
		wrong = append(wrong, errors.New("a latency, jitter or quota is negative"))
	}
	return errors.Join(wrong...)
}

// rate returns the share that Status applies to.
func (k *Knobs) rate() float64 {
	switch {
	case k.Status == 0:
		return 0
	case k.Rate == 0:
		return 1
	}
	return k.Rate
}

// wait returns the latency of one request.
func (k *Knobs) wait() time.Duration {
	if k.Jitter == 0 {
		return k.Latency
	}
	return k.Latency + rand.N(k.Jitter)
}

// share selects a share of requests, evenly spread.
type share struct{ passed, hit int64 }

// next counts one request, and reports whether it is selected: of n requests, n*part are.
func (s *share) next(part float64) bool {
	if part == 0 {
		return false
	}
	s.passed++
	// The billionth makes up for rounding, as ten tenths are less than one.
	if due := int64(float64(s.passed)*part + 1e-9); due > s.hit {
		s.hit = due
		return true
	}
	return false
}

// window counts the requests accepted in a span of time.
type window struct {
	from time.Time
	used int
}

// left returns how long a full window lasts from the given time on, 0 if it is not full.
func (w *window) left(quota int, span time.Duration, at time.Time) time.Duration {
	if quota == 0 {
		return 0
	}
	if at.Sub(w.from) >= span {
		w.from, w.used = at, 0
	}
	if w.used < quota {
		return 0
	}
	return w.from.Add(span).Sub(at)
}
