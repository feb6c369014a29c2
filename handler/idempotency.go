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
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
)

const (
	idempotencyKey     = "Idempotency-Key"
	idempotentReplayed = "Idempotent-Replayed"
	maxIdempotencyKey  = 255
	// requestLease is longer than requestTimeout. If an instance crashes during a request, the key stays in use until the lease
	// expires.
	requestLease   = time.Minute
	requestTimeout = 45 * time.Second
	// storeTimeout bounds storing an answer, which goes on if the client disconnects.
	storeTimeout = 5 * time.Second
	answerTTL    = 24 * time.Hour
	// refusalTTL is for an answer that refuses what the state of things does not allow: a repetition within minutes gets it again.
	refusalTTL = time.Hour
)

// answerStore stores the answers to requests with an Idempotency-Key.
type answerStore interface {
	ReserveRequest(ctx context.Context, once idempotency.Request, lease, keep time.Duration) (idempotency.Reservation, error)
	SaveAnswer(ctx context.Context, r idempotency.Reservation, answer []byte, keep time.Duration) error
	ForgetRequest(ctx context.Context, r idempotency.Reservation) error
}

// idempotent runs next. For a POST with an Idempotency-Key it runs next once and replays the answer to repeated requests. If an
// instance crashed during the request, next runs again with the seed of the first attempt, so that it creates nothing twice.
// The caller's secret encrypts the stored answer.
func (h *handler) idempotent(c echo.Context, actor, secret string, next func(c echo.Context, actor string) error) error {
	keys := c.Request().Header.Values(idempotencyKey)
	if c.Request().Method != http.MethodPost || len(keys) == 0 {
		return next(c, actor)
	}
	if len(keys) > 1 || !validIdempotencyKey(keys[0]) {
		return invalidField(idempotencyKey, fmt.Sprintf("must be 1 to %d printable ASCII characters, once", maxIdempotencyKey))
	}
	limit := int64(maxBody)
	if c.Path() == bulkPath {
		limit = maxBulkBody
	}
	body, err := readBody(c, limit)
	if err != nil {
		return err
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
	return s != "" && len(s) <= maxIdempotencyKey && isPrintable(s)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// fingerprint identifies a request: its method, its path and what its body says. A client that encodes the same request again may order
// members in another way, and write spaces, letters and numbers in another way. Whole numbers are compared digit by digit.
func fingerprint(r *http.Request, body []byte) string {
	canonical := jsontext.Value(bytes.Clone(trimmed(body)))
	if len(canonical) == 0 {
		canonical = jsontext.Value("{}")
	}
	// An error leaves the body as it is: it is no JSON, and will be refused.
	_ = canonical.Canonicalize(jsontext.CanonicalizeRawInts(false))
	return digest(fmt.Sprintf("%s %s\n%s", r.Method, r.URL.Path, canonical))
}

func (h *handler) reserve(c echo.Context, once idempotency.Request) (idempotency.Reservation, error) {
	r, err := h.Stores.Answers.ReserveRequest(c.Request().Context(), once, requestLease, answerTTL)
	switch {
	case errors.Is(err, idempotency.ErrKeyInUse):
		c.Response().Header().Set(echo.HeaderRetryAfter, "1")
	case errors.Is(err, dispatch.ErrUnknown) && len(r.Answer) == 0:
		h.storeAnswer(c, r, nil, nil) // otherwise the key stays in use until the lease expires
	}
	return r, err
}

// storeAnswer stores a final answer, forgets a refused request, and otherwise releases the key so that the request can be repeated. If it
// fails, the client gets the answer all the same, and a repeated request finds what this one created.
func (h *handler) storeAnswer(c echo.Context, r idempotency.Reservation, s *answerSeal, made *answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), max(storeTimeout, h.patience))
	defer cancel()
	var err error
	switch {
	case made != nil && slices.Contains(refusals, made.Status):
		err = h.Stores.Answers.ForgetRequest(ctx, r)
	case made != nil && made.final():
		keep := answerTTL
		if made.Status >= 400 {
			keep = refusalTTL
		}
		var sealed []byte
		if sealed, err = s.close(made); err == nil {
			err = h.Stores.Answers.SaveAnswer(ctx, r, sealed, keep)
		}
	default:
		err = h.Stores.Answers.SaveAnswer(ctx, r, nil, answerTTL)
	}
	if err != nil {
		h.Log.Warn("Idempotency-Key not updated; a repeated request is carried out again when the lease of this one expires", "request_id",
			requestID(c), "error", err)
	}
}

func replay(c echo.Context, s *answerSeal, sealed []byte) error {
	made, err := s.open(sealed)
	if err != nil {
		return fmt.Errorf("%w: the caller's secret has changed", idempotency.ErrKeyReused)
	}
	for name, value := range made.Header {
		c.Response().Header().Set(name, value)
	}
	c.Response().Header().Set(idempotentReplayed, "true")
	c.Response().WriteHeader(made.Status)
	_, err = c.Response().Write(made.Body)
	return err
}

// answer is a recorded response.
type answer struct {
	Status int
	Header map[string]string
	Body   []byte
}

// refusals are the answers before which nothing was changed, and that need not be kept: the same request gets the same again, or is asked
// for with other rights, later, or with a new version.
var refusals = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusPreconditionFailed,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusPreconditionRequired,
	http.StatusTooManyRequests,
}

// final reports whether the answer tells what became of the request, and is stored.
func (a *answer) final() bool {
	return a.Status < 400 || a.Status == http.StatusConflict || a.Status == http.StatusGone
}

func (a *answer) send(w http.ResponseWriter) error {
	w.WriteHeader(a.Status)
	_, err := w.Write(a.Body)
	return err
}

// replayedHeaders are stored with an answer.
var replayedHeaders = []string{echo.HeaderLocation, "ETag", echo.HeaderContentType}

// capture runs next and returns its answer without sending it.
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

// bufferedWriter records an answer instead of sending it.
type bufferedWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (w *bufferedWriter) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *bufferedWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
