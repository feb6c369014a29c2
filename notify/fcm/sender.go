// Package fcm sends pushes through Firebase Cloud Messaging, one request a call, and classifies the outcome of each.
package fcm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"firebase.google.com/go/v4/messaging"
	"google.golang.org/api/option"

	"firsttap/dispatch/outbox"
	"firsttap/notify"
)

const (
	// DefaultTimeout is the default of Options.Timeout. FCM may answer late: a shorter timeout sent duplicates.
	DefaultTimeout  = 15 * time.Second
	defaultMaxConns = 512
)

// Options configure a Sender. Only Project is required.
type Options struct {
	// Project is the identifier of the Firebase project.
	Project string
	// CredentialsFile is a key file; "" means Application Default Credentials.
	CredentialsFile string
	// Endpoint is the URL of a service that speaks FCM's protocol, such as http://127.0.0.1:9099/v1; "" means FCM. With an
	// endpoint, no credentials are read or sent.
	Endpoint string
	// Timeout bounds an attempt; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxConns is how many idle connections are kept, and with an Endpoint how many are open at most; 0 means 512.
	MaxConns int
	// Zone is the time zone of the times in the texts; nil means UTC.
	Zone *time.Location
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// WrapTransport wraps the transport of all requests; nil for none. It must pass each request on exactly once.
	WrapTransport func(http.RoundTripper) http.RoundTripper
}

// Sender sends through Firebase Cloud Messaging. It is safe for concurrent use.
type Sender struct {
	client    *messaging.Client
	transport *transport
	composer  *composer
	timeout   time.Duration
	now       func() time.Time
}

var _ notify.Sender = (*Sender)(nil)

// New returns a sender, which the caller closes. It fails if an option is wrong or the credentials can't be read. Whether
// FCM accepts the credentials shows in the first outcome. Ctx is used by New only.
func New(ctx context.Context, o Options) (*Sender, error) {
	if o.Project == "" || url.PathEscape(o.Project) != o.Project {
		return nil, fmt.Errorf("fcm: %q is not a Firebase project's identifier", o.Project)
	}
	endpoint, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("fcm: %w", err)
	}
	base := newBase(cmp.Or(o.MaxConns, defaultMaxConns), endpoint != nil)
	f := &Sender{
		transport: &transport{base: base, next: base, endpoint: endpoint},
		timeout:   cmp.Or(o.Timeout, DefaultTimeout),
		now:       time.Now,
	}
	if o.WrapTransport != nil {
		f.transport.next = o.WrapTransport(base)
	}
	if f.composer, err = newComposer(cmp.Or(o.Zone, time.UTC)); err != nil {
		return nil, fmt.Errorf("fcm: %w", err)
	}
	if o.Now != nil {
		f.now = o.Now
	}
	if err := f.connect(ctx, o); err != nil {
		f.Close()
		return nil, fmt.Errorf("fcm: %w", err)
	}
	return f, nil
}

func (f *Sender) connect(ctx context.Context, o Options) error {
	options := []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: f.transport})}
	if endpoint := f.transport.endpoint; endpoint != nil {
		options = append(options, option.WithEndpoint(endpoint.String()))
	} else {
		creds, err := loadCredentials(o.CredentialsFile, &http.Client{Transport: f.transport.base, Timeout: fetchTimeout})
		if err != nil {
			return err
		}
		if f.transport.tokens, err = newTokenCache(ctx, creds, f.now); err != nil {
			return err
		}
	}
	var err error
	f.client, err = newClient(ctx, messaging.NewClient, o.Project, options)
	return err
}

// sdkVersion is what requests say of the SDK: the version in go.mod.
const sdkVersion = "4.19.0"

// newClient calls open with a configuration, whose type is internal to the SDK. The SDK's own way leads through its package
// firebase, which imports Firestore and Storage: a third of the binary.
func newClient[Config ~struct {
	Opts      []option.ClientOption
	ProjectID string
	Version   string
}](ctx context.Context, open func(context.Context, *Config) (*messaging.Client, error), project string,
	options []option.ClientOption,
) (*messaging.Client, error) {
	return open(ctx, &Config{Opts: options, ProjectID: project, Version: sdkVersion})
}

// parseEndpoint returns the endpoint with the /v1 that the SDK needs and without a trailing slash; nil for "".
func parseEndpoint(endpoint string) (*url.URL, error) {
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("endpoint %q: want a URL like http://127.0.0.1:9099/v1", endpoint)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("endpoint at %s: want no user, query or fragment", u.Host)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	if u.Path == "" {
		u.Path = "/v1"
	}
	if !strings.HasSuffix(u.Path, "/v1") {
		return nil, fmt.Errorf("endpoint %q: want a path that ends in /v1", endpoint)
	}
	return u, nil
}

// Close cancels a request for an access token and closes idle connections. The sender must not be used afterwards.
func (f *Sender) Close() {
	if f.transport.tokens != nil {
		f.transport.tokens.close()
	}
	f.transport.base.CloseIdleConnections()
}

// Send implements notify.Sender. It makes one request and waits for the answer until the timeout or the end of ctx.
func (f *Sender) Send(ctx context.Context, p outbox.Push) notify.Outcome {
	o, _ := f.attempt(ctx, func(ctx context.Context) error {
		name, err := f.client.Send(ctx, f.composer.message(&p, f.now()))
		if err == nil && name == "" {
			err = errors.New("the answer names no message")
		}
		return err
	}, p.Device.PushToken)
	if p.Topic != "" {
		o.Class = forTopic(o.Class)
	}
	return o
}

// Validate has the push service check a message without sending it (validate_only). So the outcome says whether the service can be reached
// and accepts the credentials.
func (f *Sender) Validate(ctx context.Context) notify.Outcome {
	o, _ := f.attempt(ctx, func(ctx context.Context) error {
		_, err := f.client.SendDryRun(ctx, &messaging.Message{Topic: "firsttap-doctor", Data: map[string]string{"type": "doctor"}})
		return err
	})
	o.Class = forTopic(o.Class)
	return o
}

// Subscribe implements notify.Sender.
func (f *Sender) Subscribe(ctx context.Context, topic string, tokens []string) (refused []int, o notify.Outcome) {
	return f.manage(ctx, f.client.SubscribeToTopic, topic, tokens)
}

// Unsubscribe implements notify.Sender.
func (f *Sender) Unsubscribe(ctx context.Context, topic string, tokens []string) (refused []int, o notify.Outcome) {
	return f.manage(ctx, f.client.UnsubscribeFromTopic, topic, tokens)
}

type manageTopic = func(context.Context, []string, string) (*messaging.TopicManagementResponse, error)

func (f *Sender) manage(ctx context.Context, call manageTopic, topic string, tokens []string) (refused []int, o notify.Outcome) {
	if len(tokens) == 0 {
		return nil, notify.Outcome{Class: notify.Sent}
	}
	o, body := f.attempt(ctx, func(ctx context.Context) error {
		// The SDK's result lacks the number of results, so the body is read again below.
		_, err := call(ctx, tokens, topic)
		return err
	}, tokens...)
	if o.Class == notify.Sent {
		var err error
		if refused, err = readResults(body, len(tokens)); err != nil {
			return nil, notify.Outcome{Class: notify.Unsure, Reason: unreadableAnswer + err.Error()}
		}
	}
	o.Class = forTopic(o.Class)
	return refused, o
}

// readResults returns the indexes of the tokens that a topic call refused.
func readResults(body []byte, tokens int) (refused []int, err error) {
	var answer struct {
		Results []struct{ Error string } `json:"results"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != tokens {
		return nil, fmt.Errorf("%d results for %d tokens", len(answer.Results), tokens)
	}
	for i, r := range answer.Results {
		if r.Error != "" {
			refused = append(refused, i)
		}
	}
	return slices.Clip(refused), nil
}

// attempt makes one call of the SDK, and returns its outcome and the body of the answer. It masks the tokens in the reason.
func (f *Sender) attempt(ctx context.Context, call func(context.Context) error, tokens ...string) (notify.Outcome, []byte) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	a := &attempt{}
	err := catchPanic(func() error { return call(withAttempt(ctx, a)) })
	o := a.outcome(err, f.now())
	o.Reason = cleanReason(o.Reason, tokens...)
	return o, a.body
}

// catchPanic turns a panic into an error: the SDK panics on a topic result that is neither empty nor an error.
func catchPanic(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the SDK panicked: %v", r)
		}
	}()
	return call()
}
