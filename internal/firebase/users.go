package firebase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
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
	// maxKnownUsers bounds the cache: several times the number of drivers.
	maxKnownUsers = 16384
)

// users caches which users are disabled or signed out. Safe for concurrent use.
type users struct {
	url              string
	client           *http.Client
	google           *google
	log              *slog.Logger
	logged           rate.Sometimes // that lookups fail
	counts           *prometheus.CounterVec
	known            *lru.Cache[string, *fetched[status]]
	unavailableUntil atomic.Int64 // unix nanoseconds
}

// status is what Firebase says about a user. Tokens issued before validSince are refused.
type status struct {
	gone       bool // disabled or deleted
	validSince time.Time
}

func newUsers(o Options, client *http.Client, g *google) *users {
	known, err := lru.New[string, *fetched[status]](maxKnownUsers)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &users{
		url: lookupURL(o), client: client, google: g, known: known, log: o.Log, logged: rate.Sometimes{Interval: logInterval},
		counts: newCounter(o, "firsttap_firebase_lookups_total", "Requests to Firebase for the status of a user, by result: ok, failed."),
	}
}

// allows reports whether tokens issued to the user at that time are accepted, by the last known status.
func (u *users) allows(ctx context.Context, uid string, issued time.Time) bool {
	v, ok := u.known.Get(uid)
	if !ok {
		v = &fetched[status]{}
		if first, had, _ := u.known.PeekOrAdd(uid, v); had {
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
	return !v.value.gone && !issued.Before(v.value.validSince)
}

// refresh starts a lookup when one is due, and returns a channel to wait for, nil for none.
func (u *users) refresh(uid string, v *fetched[status]) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := u.google.now()
	age := now.Sub(v.at)
	if age >= refreshAfter && (v.err == nil || now.Sub(v.endedAt) >= lookupRetry) {
		v.start(u.google, func(ctx context.Context) (status, error) { return u.lookUp(ctx, uid) })
	}
	if age < staleAfter || now.UnixNano() < u.unavailableUntil.Load() {
		return nil
	}
	return v.pending
}

// lookUp requests the user's status. While Google does not answer, it lets no request wait.
func (u *users) lookUp(ctx context.Context, uid string) (status, error) {
	found, err := u.request(ctx, uid)
	count(u.counts, err)
	if err != nil {
		u.logged.Do(func() {
			u.log.Warn("Firebase users not looked up; their last known status counts until a lookup succeeds", "error", err)
		})
	}
	var code statusError
	switch {
	case err == nil:
		u.unavailableUntil.Store(0)
	case errors.As(err, &code) && code/100 == 4 && code != http.StatusTooManyRequests:
		// It is about this user, and says nothing about other lookups.
	default:
		u.unavailableUntil.Store(u.google.now().Add(lookupRetry).UnixNano())
	}
	return found, err
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
	var answer struct {
		Users []struct {
			ID         string `json:"localId"`
			Disabled   bool   `json:"disabled"`
			ValidSince string `json:"validSince"`
		} `json:"users"`
	}
	if err := send(u.client, req, &answer); err != nil {
		return status{}, err
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
