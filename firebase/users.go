package firebase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// refreshAfter is the age at which a user's status is looked up in the background, and staleAfter the age at which requests
	// wait for that. So a lookup that starts before staleAfter ends within a minute of the last one.
	refreshAfter = 30 * time.Second
	staleAfter   = 50 * time.Second
	// lookupTimeout is how long a request waits for a lookup, and lookupRetry how long no request waits after a failed one.
	lookupTimeout = 2 * time.Second
	lookupRetry   = 5 * time.Second
	// logInterval bounds how often failing lookups are logged.
	logInterval = time.Minute
	maxLookup   = 1 << 20 // bytes
)

// users caches which users are disabled or signed out. Concurrent requests share the lookup of a user. Safe for concurrent
// use.
type users struct {
	url              string
	client           *http.Client // nil without credentials: users are not looked up
	now              func() time.Time
	log              *slog.Logger
	metrics          *metrics
	background       *background
	cache            *lru.Cache[string, *user]
	unavailableUntil atomic.Int64 // unix nanoseconds
	loggedAt         atomic.Int64
}

type user struct {
	mu         sync.Mutex
	checkedAt  time.Time // when the last successful lookup began; zero before the first
	gone       bool      // disabled or deleted
	validSince time.Time // earlier tokens are refused
	retryAt    time.Time
	pending    chan struct{} // closed at the end of the lookup under way; nil without one
}

func newUsers(o Options, m *metrics, bg *background) (*users, error) {
	known, err := lru.New[string, *user](maxKnownUsers)
	if err != nil {
		return nil, err
	}
	u := &users{now: o.Now, log: o.Log, metrics: m, background: bg, cache: known}
	base := cmp.Or(o.UsersURL, googleUsers)
	if o.Emulator != "" {
		base = "http://" + o.Emulator + "/identitytoolkit.googleapis.com"
	}
	u.url = base + "/v1/projects/" + url.PathEscape(o.Project) + "/accounts:lookup"
	u.client, err = lookupClient(o, bg)
	if u.client == nil && err == nil {
		o.Log.Warn("no credentials for Firebase Auth: disabled and signed-out users are accepted until their tokens expire, within the hour")
	}
	return u, err
}

// lookupClient returns a client with credentials, nil without any.
func lookupClient(o Options, bg *background) (*http.Client, error) {
	client := bg.client(lookupTimeout)
	if o.Emulator != "" {
		client.Transport = emulatorAdmin{bg.conns}
		return client, nil
	}
	if o.CredentialsFile == "" && !o.Detect {
		return nil, nil
	}
	found, err := findCredentials(o.CredentialsFile, &credentials.DetectOptions{
		Scopes: []string{"https://www.googleapis.com/auth/identitytoolkit", "https://www.googleapis.com/auth/cloud-platform"},
		Client: bg.client(lookupTimeout), DisableAsyncRefresh: true,
	})
	if err != nil {
		return nil, fmt.Errorf("the credentials of Firebase Auth: %w", err)
	}
	authorized, err := httptransport.NewClient(&httptransport.Options{
		Credentials: found, DisableTelemetry: true, BaseRoundTripper: bg.conns,
	})
	if err != nil {
		return nil, fmt.Errorf("the credentials of Firebase Auth: %w", err)
	}
	client.Transport = authorized.Transport
	return client, nil
}

// findCredentials reads the file, or finds the platform's own for "". It does not check that they are valid.
func findCredentials(file string, o *credentials.DetectOptions) (*auth.Credentials, error) {
	if file == "" {
		return credentials.DetectDefault(o)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Type credentials.CredType `json:"type"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, fmt.Errorf("%s is not the JSON of a key file: %w", file, err)
	}
	return credentials.NewCredentialsFromJSON(kind.Type, raw, o)
}

// emulatorAdmin sends the emulator's administrator token.
type emulatorAdmin struct{ http.RoundTripper }

func (o emulatorAdmin) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer owner")
	return o.RoundTripper.RoundTrip(req)
}

// allows reports whether tokens issued to the user at that time are accepted, by the last known status.
func (u *users) allows(ctx context.Context, uid string, issued time.Time) bool {
	if u.client == nil {
		return true
	}
	v, ok := u.cache.Get(uid)
	if !ok {
		v = &user{}
		if first, had, _ := u.cache.PeekOrAdd(uid, v); had {
			v = first
		}
	}
	if pending := u.refresh(uid, v); pending != nil {
		select {
		case <-pending:
		case <-ctx.Done(): // the client has gone
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.gone && !issued.Before(v.validSince)
}

// refresh starts a lookup when one is due, and returns a channel to wait for, nil for none.
func (u *users) refresh(uid string, v *user) chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := u.now()
	age := now.Sub(v.checkedAt)
	if v.pending == nil && age >= refreshAfter && !now.Before(v.retryAt) {
		v.pending = make(chan struct{})
		u.background.Go(func() { u.fetch(uid, v, now) })
	}
	if age < staleAfter || now.UnixNano() < u.unavailableUntil.Load() {
		return nil
	}
	return v.pending
}

func (u *users) fetch(uid string, v *user, began time.Time) {
	found, err := u.request(u.background.ctx, uid)
	u.metrics.lookups.WithLabelValues(result(err)).Inc()
	now := u.now()
	if err != nil {
		u.recordFailure(err, now)
	} else {
		u.unavailableUntil.Store(0)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.retryAt = now.Add(lookupRetry)
	} else {
		v.checkedAt, v.gone, v.validSince = began, found.gone, found.validSince
	}
	close(v.pending)
	v.pending = nil
}

func (u *users) recordFailure(err error, now time.Time) {
	if !errors.As(err, new(rejectedLookup)) {
		u.unavailableUntil.Store(now.Add(lookupRetry).UnixNano())
	}
	said := u.loggedAt.Load()
	if now.UnixNano()-said >= int64(logInterval) && u.loggedAt.CompareAndSwap(said, now.UnixNano()) {
		u.log.Warn("Firebase users not looked up; their last known status counts until a lookup succeeds", "error", err)
	}
}

// rejectedLookup is an error about one user, which says nothing about other lookups.
type rejectedLookup struct{ error }

type status struct {
	gone       bool
	validSince time.Time
}

// request looks the user up: https://cloud.google.com/identity-platform/docs/reference/rest/v1/projects.accounts/lookup
func (u *users) request(ctx context.Context, uid string) (status, error) {
	body, err := json.Marshal(map[string][]string{"localId": {uid}})
	if err != nil {
		return status{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return status{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.client.Do(req)
	if err != nil {
		return status{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("the lookup was answered with %s", resp.Status)
		if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests {
			err = rejectedLookup{err}
		}
		return status{}, err
	}
	var answer struct {
		Users []struct {
			ID         string `json:"localId"`
			Disabled   bool   `json:"disabled"`
			ValidSince string `json:"validSince"`
		} `json:"users"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxLookup)).Decode(&answer); err != nil {
		return status{}, fmt.Errorf("decode the lookup's answer: %w", err)
	}
	for _, found := range answer.Users {
		if found.ID != uid {
			continue
		}
		seconds, err := strconv.ParseInt(cmp.Or(found.ValidSince, "0"), 10, 64)
		if err != nil {
			return status{}, fmt.Errorf("parse the lookup's validSince: %w", err)
		}
		return status{gone: found.Disabled, validSince: time.Unix(seconds, 0)}, nil
	}
	return status{gone: true}, nil
}
