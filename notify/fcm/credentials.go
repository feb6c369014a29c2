package fcm

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
)

const (
	// fetchTimeout bounds the request for an access token. It is shorter than an attempt, so that waiting attempts learn why
	// the request failed.
	fetchTimeout = 10 * time.Second
	// fetchPause is the least time from a failed request to the next.
	fetchPause = time.Second
	// renewBefore is how long before its expiry an access token is renewed. The library keeps one until 225 s before.
	renewBefore = 200 * time.Second
	// expiryMargin is how long before its expiry a token is no longer used, as clocks may differ.
	expiryMargin = 10 * time.Second
)

// scopes returns the scopes of the access token. The role of the account limits them further.
func scopes() []string {
	return []string{
		"https://www.googleapis.com/auth/firebase.messaging",
		"https://www.googleapis.com/auth/cloud-platform", // topics
	}
}

// loadCredentials reads the file, or the Application Default Credentials if it is "". It does not check whether Google
// accepts them.
func loadCredentials(file string, client *http.Client) (*auth.Credentials, error) {
	o := &credentials.DetectOptions{Scopes: scopes(), DisableAsyncRefresh: true, Client: client}
	if file == "" {
		c, err := credentials.DetectDefault(o)
		if err != nil {
			return nil, fmt.Errorf("no Application Default Credentials: %w", err)
		}
		return c, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials: %w", err)
	}
	c, err := parseCredentials(raw, o)
	if err != nil {
		return nil, fmt.Errorf("the credentials in %s: %w", file, err)
	}
	return c, nil
}

func parseCredentials(raw []byte, o *credentials.DetectOptions) (*auth.Credentials, error) {
	var file struct {
		Type  credentials.CredType `json:"type"`
		Email string               `json:"client_email"`
		Key   string               `json:"private_key"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("not the JSON of a key file: %w", err)
	}
	switch file.Type {
	case "":
		return nil, errors.New(`not a key file: it has no "type"`)
	case credentials.ServiceAccount:
		if file.Email == "" {
			return nil, errors.New(`no "client_email"`)
		}
		// The library would read the key with the first push only.
		if err := checkKey(file.Key); err != nil {
			return nil, err
		}
	}
	return credentials.NewCredentialsFromJSON(file.Type, raw, o)
}

func checkKey(key string) error {
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		return errors.New(`its "private_key" is not PEM`)
	}
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		return nil
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		return errors.New(`its "private_key" is not a private key`)
	}
	return nil
}

// credentialsError says why there is no access token. Its request was not sent to FCM.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// tokenCache keeps an access token. It makes at most one request for a new one at a time, and callers wait for it until
// their contexts end. (The library holds a mutex during its request, so a token service that hangs would block all attempts
// in turn.) It is safe for concurrent use.
type tokenCache struct {
	source auth.TokenProvider
	quota  string // the project that is charged, "" for the account's
	now    func() time.Time

	lifetime context.Context // of the requests, ended by close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	token   *auth.Token
	err     error // of the last request
	retryAt time.Time
	pending chan struct{} // closed at the end of the request in flight; nil without one
}

func newTokenCache(ctx context.Context, c *auth.Credentials, now func() time.Time) (*tokenCache, error) {
	quota, err := c.QuotaProjectID(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the quota project: %w", err)
	}
	b := &tokenCache{source: c, quota: quota, now: now}
	b.lifetime, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return b, nil
}

// close cancels the request in flight and waits for its end. The cache must not be used afterwards.
func (b *tokenCache) close() {
	b.cancel()
	b.running.Wait()
}

// authorize adds the access token to req. Its errors are credentialsErrors.
func (b *tokenCache) authorize(req *http.Request) error {
	token, err := b.current(req.Context())
	if err != nil {
		return credentialsError{err}
	}
	req.Header.Set("Authorization", "Bearer "+token.Value)
	if b.quota != "" {
		req.Header.Set("X-Goog-User-Project", b.quota)
	}
	return nil
}

func (b *tokenCache) current(ctx context.Context) (*auth.Token, error) {
	b.mu.Lock()
	now := b.now()
	if b.pending == nil && !b.validFor(now, renewBefore) && !now.Before(b.retryAt) {
		b.pending = make(chan struct{})
		b.running.Go(b.fetch)
	}
	token, err, pending := b.token, b.err, b.pending
	usable := b.validFor(now, expiryMargin)
	b.mu.Unlock()
	switch {
	case usable:
		return token, nil
	case pending == nil:
		return nil, err
	}
	select {
	case <-pending:
	case <-ctx.Done():
		return nil, fmt.Errorf("no access token yet: %w", ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.validFor(b.now(), expiryMargin) {
		return b.token, nil
	}
	if b.err == nil {
		return nil, errors.New("the new access token has already expired")
	}
	return nil, b.err
}

// validFor reports whether the token is valid for longer than d.
func (b *tokenCache) validFor(now time.Time, d time.Duration) bool {
	return b.token != nil && (b.token.Expiry.IsZero() || b.token.Expiry.Sub(now) > d)
}

func (b *tokenCache) fetch() {
	ctx, cancel := context.WithTimeout(b.lifetime, fetchTimeout)
	defer cancel()
	token, err := b.source.Token(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = err; err == nil {
		b.token = token
	} else {
		b.retryAt = b.now().Add(fetchPause)
	}
	close(b.pending)
	b.pending = nil
}
