package service

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
)

// WebhookStore writes endpoints, with an audit entry for each change. ErrUnavailable, ErrUnknown.
type WebhookStore interface {
	// CreateWebhook writes an endpoint. If the request was carried out before, it returns that request's endpoint; ErrKeyReused if it has
	// another secret. webhook.ErrTooMany.
	CreateWebhook(ctx context.Context, e webhook.Endpoint, secret string) (webhook.Endpoint, error)
	// UpdateWebhook commits what change makes of the endpoint, or nothing. webhook.ErrNotFound.
	UpdateWebhook(ctx context.Context, id webhook.ID, change func(*webhook.Endpoint) error) (webhook.Endpoint, error)
	// RotateWebhook replaces the secret. The previous one signs too for webhook.RotationOverlap. webhook.ErrNotFound.
	RotateWebhook(ctx context.Context, id webhook.ID, secret string) (webhook.Endpoint, error)
}

// WebhookAddresses decides which addresses webhooks are sent to.
type WebhookAddresses interface {
	// Check returns webhook.ErrNotAllowed if nothing may be sent to the URL, webhook.ErrNotLookedUp if no name server answered, and another
	// error if its host has no address.
	Check(ctx context.Context, url string) error
}

// Webhooks has the use cases of an admin who manages endpoints.
type Webhooks struct {
	store     WebhookStore
	addresses WebhookAddresses
}

// NewWebhooks returns Webhooks over store.
func NewWebhooks(store WebhookStore, addresses WebhookAddresses) *Webhooks {
	return &Webhooks{store: store, addresses: addresses}
}

// check returns webhook.ErrNotAllowed, webhook.ErrNoAddress or dispatch.ErrUnavailable.
func (w *Webhooks) check(ctx context.Context, url string) error {
	err := w.addresses.Check(ctx, url)
	switch {
	case err == nil || errors.Is(err, webhook.ErrNotAllowed):
		return err
	case errors.Is(err, webhook.ErrNotLookedUp):
		return fmt.Errorf("%w: %w", dispatch.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", webhook.ErrNoAddress, err)
}

// Create makes an active endpoint and returns it with its secret, which cannot be read again. by is the caller's own secret.
// webhook.ErrNotAllowed, webhook.ErrNoAddress, ErrUnavailable, and the errors of CreateWebhook.
func (w *Webhooks) Create(ctx context.Context, url string, events []string, description, by string) (webhook.Endpoint, string, error) {
	if err := w.check(ctx, url); err != nil {
		return webhook.Endpoint{}, "", err
	}
	secret := newWebhookSecret(ctx, by)
	e, err := w.store.CreateWebhook(ctx, webhook.Endpoint{
		ID: webhook.ID(idempotency.WebhookID(ctx, time.Now())), URL: url, Events: events, Description: description,
		Status: webhook.Active, Version: 1,
	}, secret)
	return e, secret, err
}

// webhookSecretPrefix is that of the Standard Webhooks convention; base64 follows.
const webhookSecretPrefix = "whsec_"

func newWebhookSecret(ctx context.Context, by string) string {
	return webhookSecretPrefix + base64.StdEncoding.EncodeToString(idempotency.Secret(ctx, by, "firsttap webhook secret"))
}

// WebhookChange is what an admin changes of an endpoint; nil stays as it is.
type WebhookChange struct {
	Version     int // 0 for any
	URL         *string
	Events      []string
	Description *string
	Status      *webhook.Status
}

// Change changes an endpoint. webhook.ErrNotAllowed, webhook.ErrNoAddress, webhook.ErrVersionConflict, and the errors of UpdateWebhook.
func (w *Webhooks) Change(ctx context.Context, id webhook.ID, c WebhookChange) (webhook.Endpoint, error) {
	if c.URL != nil { // before the transaction: names are looked up
		if err := w.check(ctx, *c.URL); err != nil {
			return webhook.Endpoint{}, err
		}
	}
	return w.store.UpdateWebhook(ctx, id, c.apply)
}

func (c WebhookChange) apply(e *webhook.Endpoint) error {
	if c.Version != 0 && c.Version != e.Version {
		return webhook.ErrVersionConflict
	}
	if c.URL != nil && *c.URL != e.URL {
		e.URL, e.FailingSince = *c.URL, nil // nothing is known of the new one
	}
	if c.Events != nil {
		e.Events = c.Events
	}
	if c.Description != nil {
		e.Description = *c.Description
	}
	if c.Status != nil {
		e.SetStatus(*c.Status)
	}
	return nil
}

// Rotate gives an endpoint a new secret, and returns it. by is the caller's own secret. The old one signs too for
// webhook.RotationOverlap. webhook.ErrNotFound.
func (w *Webhooks) Rotate(ctx context.Context, id webhook.ID, by string) (webhook.Endpoint, string, error) {
	secret := newWebhookSecret(ctx, by)
	e, err := w.store.RotateWebhook(ctx, id, secret)
	return e, secret, err
}
