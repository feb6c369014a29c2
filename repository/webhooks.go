package repository

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/webhook"
)

type webhookRow struct {
	ID             webhook.ID `gorm:"primaryKey"`
	URL            string
	Events         string // names with commas between
	Description    string
	Status         webhook.Status
	PauseReason    webhook.PauseReason
	FailingSince   *int64
	Secret         string
	PreviousSecret *string
	PreviousUntil  *int64
	// A replay that goes on has yet to write the events after ReplayFrom and up to ReplayUntil.
	ReplayFrom, ReplayUntil *dispatch.EventID
	Version                 int
	CreatedAt               int64 `gorm:"autoCreateTime:false"`
	UpdatedAt               int64 `gorm:"autoUpdateTime:false"`
}

func (webhookRow) TableName() string { return "webhooks" }

// deletedWebhook is the status of an endpoint that is deleted, and whose deliveries Prune has yet to delete.
const deletedWebhook webhook.Status = "DELETED"

func (row *webhookRow) endpoint() webhook.Endpoint {
	return webhook.Endpoint{
		ID: row.ID, URL: row.URL, Events: strings.Split(row.Events, ","), Description: row.Description, Status: row.Status,
		PauseReason: row.PauseReason, FailingSince: fromOptionalMicros(row.FailingSince), Version: row.Version,
		CreatedAt: fromMicros(row.CreatedAt), UpdatedAt: fromMicros(row.UpdatedAt),
	}
}

// take takes over what an admin changes.
func (row *webhookRow) take(e webhook.Endpoint) {
	row.URL, row.Events, row.Description = e.URL, strings.Join(e.Events, ","), e.Description
	row.Status, row.PauseReason, row.FailingSince = e.Status, e.PauseReason, optionalMicros(e.FailingSince)
}

// CreateWebhook writes an endpoint. It gets every event that is committed after it, and may get some of the last
// seconds before. If the request was carried out before, CreateWebhook returns its endpoint as it is now;
// idempotency.ErrKeyReused if that has another secret. webhook.ErrTooMany.
func (s *Store) CreateWebhook(ctx context.Context, e webhook.Endpoint, secret string) (webhook.Endpoint, error) {
	var row webhookRow
	err := s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		applied, err := alreadyApplied(tx, auditProof)
		if err != nil {
			return err
		}
		if applied {
			row, _, err = s.lockWebhook(tx, e.ID)
			if err == nil && row.Secret != secret {
				return idempotency.ErrKeyReused
			}
			return err
		}
		var others []webhook.ID // locked, so that two creations at once do not exceed the limit together
		err = tx.Raw("SELECT id FROM webhooks WHERE status <> ? ORDER BY id {for_update}", deletedWebhook).Scan(&others).Error
		if err != nil {
			return unavailable(err)
		}
		if len(others) >= webhook.MaxEndpoints {
			return webhook.ErrTooMany
		}
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		row = webhookRow{ID: e.ID, Secret: secret, Version: 1, CreatedAt: micros(now), UpdatedAt: micros(now)}
		row.take(e)
		if err := tx.Create(&row).Error; err != nil {
			return unavailable(err)
		}
		return audit(tx, dispatch.AuditWebhookCreate, string(e.ID), webhookChanges(webhook.Endpoint{}, row.endpoint()), now)
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return row.endpoint(), nil
}

// Webhooks returns all endpoints, the newest first.
func (s *Store) Webhooks(ctx context.Context) ([]webhook.Endpoint, error) {
	var rows []webhookRow
	if err := s.serve.WithContext(ctx).Where("status <> ?", deletedWebhook).Order("id DESC").Find(&rows).Error; err != nil {
		return nil, unavailable(err)
	}
	return webhookEndpoints(rows), nil
}

func webhookEndpoints(rows []webhookRow) []webhook.Endpoint {
	all := make([]webhook.Endpoint, len(rows))
	for i := range rows {
		all[i] = rows[i].endpoint()
	}
	return all
}

// Webhook returns the endpoint. webhook.ErrNotFound.
func (s *Store) Webhook(ctx context.Context, id webhook.ID) (webhook.Endpoint, error) {
	row, err := findWebhook(s.serve.WithContext(ctx), id, "")
	return row.endpoint(), err
}

// findWebhook returns webhook.ErrNotFound also for an endpoint that is deleted.
func findWebhook(db *gorm.DB, id webhook.ID, locking string) (webhookRow, error) {
	var rows []webhookRow
	err := db.Raw("SELECT * FROM webhooks WHERE id = ? AND status <> ?"+locking, id, deletedWebhook).Scan(&rows).Error
	if err != nil {
		return webhookRow{}, unavailable(err)
	}
	if len(rows) == 0 {
		return webhookRow{}, webhook.ErrNotFound
	}
	return rows[0], nil
}

// lockWebhook locks the endpoint's row until tx ends, and returns it and the database's time. webhook.ErrNotFound,
// with the time.
func (s *Store) lockWebhook(tx *gorm.DB, id webhook.ID) (webhookRow, time.Time, error) {
	row, err := findWebhook(tx, id, "{for_update}")
	if err != nil && !errors.Is(err, webhook.ErrNotFound) {
		return row, time.Time{}, err
	}
	now, clockErr := s.clock(tx) // after the wait for the row's lock
	return row, now, errors.Join(err, clockErr)
}

// UpdateWebhook commits what change makes of the endpoint, or nothing. An endpoint that becomes active gets every
// event that is committed after that, and what was pending. webhook.ErrNotFound; change's own errors unchanged.
func (s *Store) UpdateWebhook(ctx context.Context, id webhook.ID, change func(*webhook.Endpoint) error) (webhook.Endpoint, error) {
	stored, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookUpdate, func(row *webhookRow, _ time.Time) (map[string]any, error) {
		before, after := row.endpoint(), row.endpoint()
		if err := change(&after); err != nil {
			return nil, err
		}
		detail := webhookChanges(before, after)
		row.take(after)
		return detail, nil
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return stored.endpoint(), nil
}

// RotateWebhook replaces the endpoint's secret; the one before signs too for webhook.RotationOverlap. Repeated with
// the same secret it changes nothing. webhook.ErrNotFound; idempotency.ErrKeyReused if the request was carried out
// before, and the endpoint has another secret now.
func (s *Store) RotateWebhook(ctx context.Context, id webhook.ID, secret string) (webhook.Endpoint, error) {
	stored, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookRotate, func(row *webhookRow, now time.Time) (map[string]any, error) {
		if row.Secret == secret {
			return nil, nil
		}
		previous, until := row.Secret, micros(now.Add(webhook.RotationOverlap))
		row.Secret, row.PreviousSecret, row.PreviousUntil = secret, &previous, &until
		return map[string]any{}, nil
	})
	if err == nil && stored.Secret != secret {
		err = idempotency.ErrKeyReused
	}
	return stored.endpoint(), err
}

// changeWebhook commits what change makes of the endpoint's row, with its audit entry, and returns the row as it is
// then. If change returns a nil detail, or the request was carried out before, nothing is written.
// webhook.ErrNotFound; change's own errors unchanged.
func (s *Store) changeWebhook(ctx context.Context, id webhook.ID, action dispatch.AuditAction,
	change func(row *webhookRow, now time.Time) (detail map[string]any, err error),
) (row webhookRow, err error) {
	row, _, err = s.withWebhook(ctx, id, action, func(tx *gorm.DB, row *webhookRow, now time.Time) (map[string]any, error) {
		detail, err := change(row, now)
		if err != nil || detail == nil {
			return nil, err
		}
		row.Version++
		row.UpdatedAt = micros(now)
		return detail, unavailable(tx.Model(&webhookRow{}).Where("id = ?", id).Select("*").Omit("id", "created_at").Updates(row).Error)
	})
	return row, err
}

// withWebhook commits what do writes, with its audit entry, while the endpoint's row is locked, and returns the row. If
// do returns a nil detail there is no entry. Applied says that the request was carried out before: then do is not
// called. webhook.ErrNotFound; do's own errors unchanged.
func (s *Store) withWebhook(ctx context.Context, id webhook.ID, action dispatch.AuditAction,
	do func(tx *gorm.DB, row *webhookRow, now time.Time) (detail map[string]any, err error),
) (row webhookRow, applied bool, err error) {
	err = s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		var now time.Time
		if row, now, err = s.lockWebhook(tx, id); err != nil {
			return err
		}
		if applied, err = alreadyApplied(tx, auditProof); applied || err != nil {
			return err
		}
		detail, err := do(tx, &row, now)
		if err != nil || detail == nil {
			return err
		}
		return audit(tx, action, string(id), detail, now)
	})
	return row, applied, err
}

// DeleteWebhook deletes the endpoint. Prune deletes its deliveries. webhook.ErrNotFound.
func (s *Store) DeleteWebhook(ctx context.Context, id webhook.ID) error {
	_, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookDelete, func(row *webhookRow, _ time.Time) (map[string]any, error) {
		detail := map[string]any{"url": auditedURL(row.URL)}
		*row = webhookRow{Status: deletedWebhook, Events: row.Events, FailingSince: row.FailingSince, Version: row.Version}
		return detail, nil
	})
	return err
}

// webhookChanges returns the endpoint's changed fields by their names in the API, and nil if there are none.
func webhookChanges(from, to webhook.Endpoint) map[string]any {
	c := fieldChanges{}
	addChange(c, "url", auditedURL(from.URL), auditedURL(to.URL))
	if !slices.Equal(from.Events, to.Events) {
		c["events"] = map[string]any{"from": from.Events, "to": to.Events}
	}
	addChange(c, "description", nullableText(from.Description), nullableText(to.Description))
	addChange(c, "status", nullableText(string(from.Status)), nullableText(string(to.Status)))
	addChange(c, "pause_reason", nullableText(string(from.PauseReason)), nullableText(string(to.PauseReason)))
	if len(c) == 0 {
		return nil
	}
	return c
}

// auditedURL is the URL as the audit has it: its host, and the beginning of a hash, as the rest is often a secret.
func auditedURL(text string) any {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return tokenHash(text)
	}
	return fmt.Sprintf("%s://%s/... (%s)", u.Scheme, u.Host, tokenHash(text))
}
