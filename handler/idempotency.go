package handler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

const (
	idempotencyKey     = "Idempotency-Key"
	idempotentReplayed = "Idempotent-Replayed"
	maxIdempotencyKey  = 255
	// requestLease is longer than any request with a key may take, which is requestTime. Whoever dies keeps the key for
	// that long.
	requestLease   = time.Minute
	requestTimeout = 45 * time.Second
	// storeTimeout is what keeping an answer may take, also when the client has hung up meanwhile.
	storeTimeout = 5 * time.Second
	answerTTL    = 24 * time.Hour
)

// idempotencyStore stores the answers to requests with an Idempotency-Key.
type idempotencyStore interface {
	Reserve(ctx context.Context, once idempotency.Request, lease, keep time.Duration) (idempotency.Reservation, error)
	Settle(ctx context.Context, r idempotency.Reservation, answer []byte) error
}

// idempotent runs next, and a request with an Idempotency-Key once: the same one again gets the answer of the first, and one that
// an instance has left half done is done again with the seed of the first, so that nothing is made twice. secret is
// the caller's. A request without a key is none of its business.
func (h *handler) idempotent(c echo.Context, actor, secret string, next func(c echo.Context, actor string) error) error {
	keys := c.Request().Header.Values(idempotencyKey)
	if c.Request().Method != http.MethodPost || len(keys) == 0 {
		return next(c, actor)
	}
	if len(keys) > 1 || !validIdempotencyKey(keys[0]) {
		return invalidField(idempotencyKey, fmt.Sprintf("must be 1 to %d printable ASCII characters, once", maxIdempotencyKey))
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response().Writer, c.Request().Body, maxBulkBody))
	if err != nil {
		return decodeError(err)
	}
	r, err := h.reserve(c, idempotency.Request{Caller: actor, Name: digest(keys[0]), Fingerprint: fingerprint(c.Request(), body)})
	if err != nil {
		return err
	}
	seal := newAnswerSeal(secret, keys[0], r.Request)
	if len(r.Answer) > 0 {
		return replay(c, seal, r.Answer)
	}
	ctx, cancel := context.WithTimeout(idempotency.WithSeed(c.Request().Context(), r.Seed), requestTimeout)
	defer cancel()
	c.SetRequest(c.Request().WithContext(ctx))
	c.Request().Body = io.NopCloser(bytes.NewReader(body))
	made := h.capture(c, func(c echo.Context) error { return next(c, actor) })
	h.storeAnswer(c, r, seal, made)
	return made.send(c.Response().Writer)
}

func validIdempotencyKey(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxIdempotencyKey
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// fingerprint is of all that makes two requests the same.
func fingerprint(r *http.Request, body []byte) string {
	return digest(fmt.Sprintf("%s %s\n%s", r.Method, r.URL.EscapedPath(), body))
}

func (h *handler) reserve(c echo.Context, once idempotency.Request) (idempotency.Reservation, error) {
	r, err := h.stores.idempotency.Reserve(c.Request().Context(), once, requestLease, answerTTL)
	switch {
	case errors.Is(err, idempotency.ErrKeyInUse):
		c.Response().Header().Set(echo.HeaderRetryAfter, "1")
	case errors.Is(err, dispatch.ErrUnknown) && len(r.Answer) == 0:
		h.storeAnswer(c, r, nil, nil) // or the key would be in use until the lease ends
	}
	return r, err
}

// storeAnswer keeps the answer, or lets the next one try again. The request is answered in any case: whoever sends it again meets
// what was made.
func (h *handler) storeAnswer(c echo.Context, r idempotency.Reservation, s *answerSeal, made *answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), storeTimeout)
	defer cancel()
	var sealed []byte
	var err error
	if made != nil && made.final() {
		sealed, err = s.close(made)
	}
	if err == nil {
		err = h.stores.idempotency.Settle(ctx, r, sealed)
	}
	if err != nil {
		h.Log.Warn("the answer to an Idempotency-Key was not kept", "request_id", requestID(c), "error", err)
	}
}

func replay(c echo.Context, s *answerSeal, sealed []byte) error {
	made, err := s.open(sealed)
	if err != nil {
		return fmt.Errorf("%w: the caller's secret is another by now", idempotency.ErrKeyReused)
	}
	for name, value := range made.Header {
		c.Response().Header().Set(name, value)
	}
	c.Response().Header().Set(idempotentReplayed, "true")
	c.Response().WriteHeader(made.Status)
	_, err = c.Response().Write(made.Body)
	return err
}

// answer is what was answered to a request.
type answer struct {
	Status int
	Header map[string]string
	Body   []byte
}

// final reports whether the answer is kept: it is about the request, and neither about who may send it nor about us. One
// about If-Match is not: the same request with a fresh version is the one that the client was told to send.
func (a *answer) final() bool {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return false
	}
	return a.Status < 500
}

// send answers the request.
func (a *answer) send(w http.ResponseWriter) error {
	w.WriteHeader(a.Status)
	_, err := w.Write(a.Body)
	return err
}

// replayedHeaders are replayed with an answer.
var replayedHeaders = []string{echo.HeaderLocation, "ETag", echo.HeaderContentType}

// capture runs next and returns what it answers, which nobody has been sent yet.
func (h *handler) capture(c echo.Context, next echo.HandlerFunc) *answer {
	w := c.Response().Writer
	held := &bufferedWriter{ResponseWriter: w, status: http.StatusOK}
	c.Response().Writer = held
	defer func() { c.Response().Writer = w }()
	if err := h.recovered(next, c); err != nil {
		h.answerError(err, c)
	}
	made := &answer{Status: held.status, Header: map[string]string{}, Body: held.body.Bytes()}
	for _, name := range replayedHeaders {
		if value := c.Response().Header().Get(name); value != "" {
			made.Header[name] = value
		}
	}
	return made
}

// bufferedWriter keeps an answer back.
type bufferedWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (w *bufferedWriter) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *bufferedWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
