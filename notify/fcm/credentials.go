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
	// fetchTimeout bounds the request for an access token, less than an attempt: the attempts that wait for it learn why
	// it failed.
	fetchTimeout = 10 * time.Second
	// fetchPause is for how long nobody asks again after that failed.
	fetchPause = time.Second
	// renewBefore is how long before its end an access token is replaced. The library itself keeps one until 225 s before.
	renewBefore = 200 * time.Second
	// expiryMargin is how long before its end it is not used any more, as the clocks may differ.
	expiryMargin = 10 * time.Second
)

// scopes returns what the access token is for. The role of the account bounds what it may do.
func scopes() []string {
	return []string{
		"https://www.googleapis.com/auth/firebase.messaging",
		"https://www.googleapis.com/auth/cloud-platform", // topics
	}
}

// loadCredentials reads the file, or finds the Application Default Credentials where it is "". Nothing is asked yet
// whether they are accepted.
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
		return nil, fmt.Errorf("the credentials can't be read: %w", err)
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
		return nil, errors.New(`no key file: it has no "type"`)
	case credentials.ServiceAccount:
		if file.Email == "" {
			return nil, errors.New(`no "client_email"`)
		}
		// The library would look at the key only when the first push is sent.
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

// credentialsError is why a request has no access token. FCM has not seen it.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// tokenCache keeps an access token. At most one request for a new one is under way, and whoever needs it waits no longer
// than their context: the library holds a mutex meanwhile, so that a token service that hangs would hold up all attempts
// one after the other. It is safe for concurrent use.
type tokenCache struct {
	source auth.TokenProvider
	quota  string // the project that pays, "" for the account's
	now    func() time.Time

	lifetime context.Context // of the requests; ends with close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	token   *auth.Token
	err     error // of the last request
	retryAt time.Time
	pending chan struct{} // closed when the request under way has ended; nil without one
}

func newTokenCache(ctx context.Context, c *auth.Credentials, now func() time.Time) (*tokenCache, error) {
	quota, err := c.QuotaProjectID(ctx)
	if err != nil {
		return nil, fmt.Errorf("the project that pays for requests: %w", err)
	}
	b := &tokenCache{source: c, quota: quota, now: now}
	b.lifetime, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return b, nil
}

// close ends the request under way and waits for it. Nothing may be sent any more.
func (b *tokenCache) close() {
	b.cancel()
	b.running.Wait()
}

// authorize gives req the access token. Its errors are credentialsErrors.
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
		return nil, errors.New("the access token was over when it came")
	}
	return nil, b.err
}

// validFor reports whether there is a token that is good for longer than d.
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
