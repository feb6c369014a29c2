package fcmtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Knobs are what the service does to those who send. The zero value is a healthy service without latency. A share is
// between 0 and 1.
type Knobs struct {
	// Latency lies between a request's arrival and its answer, be it an error, plus up to Jitter. Topic calls have it too.
	Latency, Jitter time.Duration

	// Status is the error, 400 to 599, that answers every send; 0: healthy. Of 400, 401, 403, 404, 429, 500 and 503 the
	// body is FCM's, of the others a page of HTML as of a proxy.
	Status int
	// ErrorCode is the FcmError's errorCode: "" for the usual one of Status (of 401 THIRD_PARTY_AUTH_ERROR, of 403
	// SENDER_ID_MISMATCH), "-" for no FcmError: plain UNAUTHENTICATED of 401, plain PERMISSION_DENIED of 403.
	ErrorCode string
	// RetryAfter is the header of that name with Status, TopicStatus and quota errors: seconds or an HTTP date.
	RetryAfter string
	// Rate is the share of sends that Status applies to; 0 is all of them.
	Rate float64

	// Hang leaves every request without an answer until its client goes or the server is closed; nothing is taken.
	Hang bool
	// Drop is the share of sends whose connection is cut without an answer; nothing is taken.
	Drop float64
	// DropAfterAccept is the share that the device gets and whose connection is cut without an answer.
	DropAfterAccept float64
	// HangAfterAccept is the share that the device gets and that is left without an answer.
	HangAfterAccept float64
	// BadJSON is the share that the device gets and whose answer is 200 with an unreadable body.
	BadJSON float64

	// QuotaPerMinute and QuotaPerSecond are how many sends are let through; the others are answered 429, with a
	// Retry-After until the window ends unless RetryAfter says otherwise. 0: no quota. A window begins with its first send.
	QuotaPerMinute, QuotaPerSecond int

	// TopicStatus is the error that answers every topic call; 0: healthy.
	TopicStatus int
}

// Validate says what is wrong with the knobs.
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

// rate is the share that Status applies to.
func (k *Knobs) rate() float64 {
	switch {
	case k.Status == 0:
		return 0
	case k.Rate == 0:
		return 1
	}
	return k.Rate
}

// wait is one request's latency.
func (k *Knobs) wait() time.Duration {
	if k.Jitter == 0 {
		return k.Latency
	}
	return k.Latency + rand.N(k.Jitter)
}

// share hits a part of what passes it.
type share struct{ passed, hit int64 }

// next counts one, and reports whether it is hit: of n, n*part are, evenly spread.
func (s *share) next(part float64) bool {
	if part == 0 {
		return false
	}
	s.passed++
	// The sum of tenths is not a whole; a billionth makes it one.
	if due := int64(float64(s.passed)*part + 1e-9); due > s.hit {
		s.hit = due
		return true
	}
	return false
}

// window counts what is let through in a span of time.
type window struct {
	from time.Time
	used int
}

// left is how long the window of span is still full at the given time, 0 if it isn't.
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
