package firebase

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"firsttap/dispatch"
	"firsttap/internal/auth"
)

const (
	googleKeys  = "https://www.googleapis.com/robot/v1/metadata/x509/securetoken@system.gserviceaccount.com"
	keysTimeout = 5 * time.Second
	// keysAge is the age at which the keys are fetched again. Google lets them be kept for several hours.
	keysAge = time.Hour
	// keysPause is the least time between an answer and the next request, even for unknown keys; retryPause that after a failure.
	keysPause  = time.Minute
	retryPause = 5 * time.Second
)

// keySet has the keys that sign ID tokens, by their identifiers. Old keys stay in use and are renewed in the background: an outage of
// Google refuses no token with a known key. Safe for concurrent use.
type keySet struct {
	fetched[map[string]*rsa.PublicKey]
	url     string
	client  *http.Client
	google  *google
	log     *slog.Logger
	counts  *prometheus.CounterVec
	failing bool // needs a fetch under way
}

func newKeySet(o Options, g *google) *keySet {
	return &keySet{
		url: cmp.Or(o.KeysURL, googleKeys), client: g.client(keysTimeout), google: g, log: o.Log,
		counts: newCounter(o, "firsttap_firebase_key_fetches_total",
			"Requests to Google for the keys that sign ID tokens, by result: ok, failed."),
	}
}

// key returns the key with that id. ErrUnauthenticated if Google has no such key, dispatch.ErrUnavailable if Google does not answer.
// It waits for Google only if the id is not known.
func (k *keySet) key(ctx context.Context, id string) (*rsa.PublicKey, error) {
	key, pending, err := k.find(id)
	if key == nil && pending != nil {
		select {
		case <-pending:
			key, _, err = k.find(id)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	switch {
	case key != nil:
		return key, nil
	case err != nil:
		return nil, fmt.Errorf("%w: the keys of Firebase Auth are not known: %w", dispatch.ErrUnavailable, err)
	}
	return nil, auth.ErrUnauthenticated
}

// find returns the key, nil for none, the end of the fetch under way, nil for none, and the error of the last fetch. It starts a fetch for
// an unknown or an old key when the pause is over.
func (k *keySet) find(id string) (*rsa.PublicKey, <-chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, pause := k.google.now(), keysPause
	if k.err != nil {
		pause = retryPause
	}
	if (k.value[id] == nil || now.Sub(k.at) >= keysAge) && now.Sub(k.endedAt) >= pause {
		k.start(k.google, k.fetch)
	}
	return k.value[id], k.pending, k.err
}

// fetch requests the keys, and logs the first failure and the first success after it.
func (k *keySet) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	keys, err := k.request(ctx)
	count(k.counts, err)
	switch {
	case err != nil && !k.failing:
		k.log.Warn("keys of Firebase Auth not fetched; known keys stay in use until a retry succeeds", "error", err)
	case err == nil && k.failing:
		k.log.Info("keys of Firebase Auth are fetched again")
	}
	k.failing = err != nil
	return keys, err
}

func (k *keySet) request(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	var certificates map[string]string
	if err := send(k.client, req, &certificates); err != nil {
		return nil, err
	}
	keys := make(map[string]*rsa.PublicKey, len(certificates))
	for id, pem := range certificates {
		if keys[id], err = jwt.ParseRSAPublicKeyFromPEM([]byte(pem)); err != nil {
			return nil, fmt.Errorf("key %q: %w", id, err)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the answer has no keys")
	}
	return keys, nil
}
