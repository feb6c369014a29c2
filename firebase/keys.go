package firebase

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"firsttap/dispatch"
)

const (
	fetchTimeout = 5 * time.Second
	// refetchPause is the least time between an answer and the next request, even for unknown keys; retryPause that after a
	// failure.
	refetchPause = time.Minute
	retryPause   = 5 * time.Second
	// defaultAge is how long keys are fresh without a max-age; maxAge bounds a max-age.
	defaultAge = time.Hour
	maxAge     = 24 * time.Hour
	maxKeys    = 1 << 20 // bytes
)

// keySet caches the keys that sign ID tokens, for as long as Google's answer allows. Stale keys stay in use and are renewed
// in the background: an outage of Google refuses no token with a known key. At most one request is under way. Safe for
// concurrent use.
type keySet struct {
	url        string
	client     *http.Client
	now        func() time.Time
	log        *slog.Logger
	metrics    *metrics
	background *background

	mu          sync.Mutex
	keys        map[string]*rsa.PublicKey
	freshUntil  time.Time
	requestedAt time.Time
	err         error         // of the last request
	pending     chan struct{} // closed at the end of the request under way; nil without one
}

func newKeySet(url string, now func() time.Time, log *slog.Logger, m *metrics, bg *background) *keySet {
	return &keySet{url: url, client: bg.client(fetchTimeout), now: now, log: log, metrics: m, background: bg}
}

// key returns the key with that id. ErrRefused if Google has no such key, dispatch.ErrUnavailable if Google does not answer.
// It waits for Google only if the id is not known.
func (k *keySet) key(ctx context.Context, id string) (*rsa.PublicKey, error) {
	k.mu.Lock()
	key, pending, err := k.keys[id], k.renew(k.keys[id] == nil), k.err
	k.mu.Unlock()
	switch {
	case key != nil:
		return key, nil
	case pending == nil:
		return nil, unknownKey(err)
	}
	select {
	case <-pending:
	case <-ctx.Done():
		return nil, unknownKey(ctx.Err())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := k.keys[id]; key != nil {
		return key, nil
	}
	return nil, unknownKey(k.err)
}

func unknownKey(why error) error {
	if why == nil {
		return ErrRefused
	}
	return fmt.Errorf("%w: the keys of Firebase Auth are not known: %w", dispatch.ErrUnavailable, why)
}

// renew starts a request for new keys if one is missing or they are stale, and the pause is over. It returns a channel that is
// closed at the end of the request under way, nil without one.
func (k *keySet) renew(missing bool) chan struct{} {
	now, pause := k.now(), refetchPause
	if k.err != nil {
		pause = retryPause
	}
	stale := !now.Before(k.freshUntil)
	if k.pending == nil && (missing || stale) && now.Sub(k.requestedAt) >= pause {
		k.pending = make(chan struct{})
		k.background.Go(k.fetch)
	}
	return k.pending
}

func (k *keySet) fetch() {
	keys, age, err := k.request(k.background.ctx)
	k.metrics.keys.WithLabelValues(result(err)).Inc()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && k.err == nil:
		k.log.Warn("keys of Firebase Auth not fetched; known keys stay in use until a retry succeeds", "keys", len(k.keys), "error", err)
	case err == nil && k.err != nil:
		k.log.Info("keys of Firebase Auth are fetched again")
	}
	k.requestedAt = k.now()
	if k.err = err; err == nil {
		k.keys, k.freshUntil = keys, k.requestedAt.Add(age)
	}
	close(k.pending)
	k.pending = nil
}

func (k *keySet) request(ctx context.Context) (map[string]*rsa.PublicKey, time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("the request for keys was answered with %s", resp.Status)
	}
	var certificates map[string]string
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxKeys)).Decode(&certificates); err != nil {
		return nil, 0, fmt.Errorf("the keys are not JSON: %w", err)
	}
	keys := make(map[string]*rsa.PublicKey, len(certificates))
	for id, pem := range certificates {
		if keys[id], err = jwt.ParseRSAPublicKeyFromPEM([]byte(pem)); err != nil {
			return nil, 0, fmt.Errorf("key %q: %w", id, err)
		}
	}
	if len(keys) == 0 {
		return nil, 0, errors.New("the answer has no keys")
	}
	return keys, freshFor(resp.Header), nil
}

// freshFor returns how long an answer stays fresh.
func freshFor(h http.Header) time.Duration {
	for directive := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		seconds, ok := strings.CutPrefix(strings.TrimSpace(directive), "max-age=")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(seconds, 10, 31)
		if err != nil {
			break
		}
		spent, _ := strconv.ParseUint(h.Get("Age"), 10, 31)
		return min(max(0, time.Duration(n)-time.Duration(spent))*time.Second, maxAge)
	}
	return defaultAge
}
