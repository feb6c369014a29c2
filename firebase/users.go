package firebase

import (
	"bytes"
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
	// lookAgain is how old a user's status is when it is looked up behind the requests; tooOld is when requests wait for
	// that. A lookup that began before tooOld ends within a minute of what it replaces.
	lookAgain = 30 * time.Second
	tooOld    = 50 * time.Second
	// lookupTimeout is what a request may lose to a lookup, and lookupRetry for how long none waits after one has failed.
	lookupTimeout = 2 * time.Second
	lookupRetry   = 5 * time.Second
	// sayEvery bounds how often failing lookups are told of.
	sayEvery  = time.Minute
	maxLookup = 1 << 20 // bytes
)

// users knows who is disabled or signed out. A user is looked up once for all requests that want to know. Safe for
// concurrent use.
type users struct {
	url       string
	client    *http.Client // nil: nobody is looked up
	now       func() time.Time
	log       *slog.Logger
	counts    *metrics
	life      *life
	known     *lru.Cache[string, *user]
	awayUntil atomic.Int64 // unix nanoseconds
	saidAt    atomic.Int64
}

type user struct {
	mu      sync.Mutex
	at      time.Time // when the lookup began that told the rest; zero before the first
	gone    bool      // disabled or deleted
	since   time.Time // tokens of before are not good
	retryAt time.Time
	pending chan struct{} // closed when the lookup under way has ended; nil without one
}

func newUsers(o Options, counts *metrics, life *life) (*users, error) {
	known, err := lru.New[string, *user](knownUsers)
	if err != nil {
		return nil, err
	}
	u := &users{now: o.Now, log: o.Log, counts: counts, life: life, known: known}
	base := orElse(o.UsersURL, googleUsers)
	if o.Emulator != "" {
		base = "http://" + o.Emulator + "/identitytoolkit.googleapis.com"
	}
	u.url = base + "/v1/projects/" + url.PathEscape(o.Project) + "/accounts:lookup"
	u.client, err = lookupClient(o, life)
	if u.client == nil && err == nil {
		o.Log.Warn("no credentials for Firebase Auth: disabled and signed-out users stay welcome until their tokens end, within the hour")
	}
	return u, err
}

// lookupClient returns a client that has credentials, nil where there are none.
func lookupClient(o Options, life *life) (*http.Client, error) {
	client := life.client(lookupTimeout)
	if o.Emulator != "" {
		client.Transport = owner{life.conns}
		return client, nil
	}
	if o.CredentialsFile == "" && !o.Detect {
		return nil, nil
	}
	found, err := findCredentials(o.CredentialsFile, &credentials.DetectOptions{
		Scopes: []string{"https://www.googleapis.com/auth/identitytoolkit", "https://www.googleapis.com/auth/cloud-platform"},
		Client: life.client(lookupTimeout), DisableAsyncRefresh: true,
	})
	if err != nil {
		return nil, fmt.Errorf("the credentials of Firebase Auth: %w", err)
	}
	authorized, err := httptransport.NewClient(&httptransport.Options{
		Credentials: found, DisableTelemetry: true, BaseRoundTripper: life.conns,
	})
	if err != nil {
		return nil, fmt.Errorf("the credentials of Firebase Auth: %w", err)
	}
	client.Transport = authorized.Transport
	return client, nil
}

// findCredentials reads the file, or finds the platform's own where it is "". Nothing is asked yet whether they are good.
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

// owner is whom the emulator takes for its administrator.
type owner struct{ http.RoundTripper }

func (o owner) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer owner")
	return o.RoundTripper.RoundTrip(req)
}

// welcome reports whether tokens issued to the user at that time are still good, as far as anybody knows.
func (u *users) welcome(ctx context.Context, uid string, issued time.Time) bool {
	if u.client == nil {
		return true
	}
	v, ok := u.known.Get(uid)
	if !ok {
		v = &user{}
		if first, had, _ := u.known.PeekOrAdd(uid, v); had {
			v = first
		}
	}
	if pending := u.look(uid, v); pending != nil {
		select {
		case <-pending:
		case <-ctx.Done(): // nobody hears the answer
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.gone && !issued.Before(v.since)
}

// look has the user looked up when it is time to, and returns what to wait for, nil for nothing.
func (u *users) look(uid string, v *user) chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := u.now()
	age := now.Sub(v.at)
	if v.pending == nil && age >= lookAgain && !now.Before(v.retryAt) {
		v.pending = make(chan struct{})
		u.life.Go(func() { u.lookUp(uid, v, now) })
	}
	if age < tooOld || now.UnixNano() < u.awayUntil.Load() {
		return nil
	}
	return v.pending
}

func (u *users) lookUp(uid string, v *user, began time.Time) {
	found, err := u.ask(u.life.ctx, uid)
	u.counts.lookups.WithLabelValues(result(err)).Inc()
	now := u.now()
	if err != nil {
		u.failed(err, now)
	} else {
		u.awayUntil.Store(0)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.retryAt = now.Add(lookupRetry)
	} else {
		v.at, v.gone, v.since = began, found.gone, found.since
	}
	close(v.pending)
	v.pending = nil
}

func (u *users) failed(err error, now time.Time) {
	if !errors.As(err, new(refusal)) {
		u.awayUntil.Store(now.Add(lookupRetry).UnixNano())
	}
	said := u.saidAt.Load()
	if now.UnixNano()-said >= int64(sayEvery) && u.saidAt.CompareAndSwap(said, now.UnixNano()) {
		u.log.Warn("Firebase users can't be looked up: what was known of them last counts", "error", err)
	}
}

// refusal is of one lookup by a Google that is there: it says nothing about the next.
type refusal struct{ error }

type lookedUp struct {
	gone  bool
	since time.Time
}

// ask looks the user up: https://cloud.google.com/identity-platform/docs/reference/rest/v1/projects.accounts/lookup
func (u *users) ask(ctx context.Context, uid string) (lookedUp, error) {
	body, err := json.Marshal(map[string][]string{"localId": {uid}})
	if err != nil {
		return lookedUp{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return lookedUp{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.client.Do(req)
	if err != nil {
		return lookedUp{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("the lookup was answered with %s", resp.Status)
		if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests {
			err = refusal{err}
		}
		return lookedUp{}, err
	}
	var answer struct {
		Users []struct {
			ID         string `json:"localId"`
			Disabled   bool   `json:"disabled"`
			ValidSince string `json:"validSince"`
		} `json:"users"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxLookup)).Decode(&answer); err != nil {
		return lookedUp{}, fmt.Errorf("the lookup's answer: %w", err)
	}
	for _, found := range answer.Users {
		if found.ID != uid {
			continue
		}
		seconds, err := strconv.ParseInt(orElse(found.ValidSince, "0"), 10, 64)
		if err != nil {
			return lookedUp{}, fmt.Errorf("the lookup's validSince: %w", err)
		}
		return lookedUp{gone: found.Disabled, since: time.Unix(seconds, 0)}, nil
	}
	return lookedUp{gone: true}, nil
}
