package webhooks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/repository/database"
	"firsttap/repository/journal"
	"firsttap/webhook"
)

// Webhooks are the endpoints and their deliveries. It is safe for concurrent use.
type Webhooks struct{ db *database.DB }

// New returns the endpoints in a database.
func New(db *database.DB) *Webhooks { return &Webhooks{db} }

// Row is a row of the table webhooks.
type Row struct {
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

// TableName implements gorm.Tabler.
func (Row) TableName() string { return "webhooks" }

// deletedWebhook is the status of an endpoint that is deleted, and whose deliveries Prune has yet to delete.
const deletedWebhook webhook.Status = "DELETED"

func (row *Row) endpoint() webhook.Endpoint {
	return webhook.Endpoint{
		ID: row.ID, URL: row.URL, Events: strings.Split(row.Events, ","), Description: row.Description, Status: row.Status,
		PauseReason: row.PauseReason, FailingSince: database.OptionalTime(row.FailingSince), Version: row.Version,
		CreatedAt: database.Time(row.CreatedAt), UpdatedAt: database.Time(row.UpdatedAt),
	}
}

// take takes over what an admin changes.
func (row *Row) take(e webhook.Endpoint) {
	row.URL, row.Events, row.Description = e.URL, strings.Join(e.Events, ","), e.Description
	row.Status, row.PauseReason, row.FailingSince = e.Status, e.PauseReason, database.OptionalMicros(e.FailingSince)
}

// CreateWebhook writes an endpoint. It gets every event that is committed after it, and may get some of the last
// seconds before. If the request was carried out before, CreateWebhook returns its endpoint as it is now;
// idempotency.ErrKeyReused if that has another secret. webhook.ErrTooMany.
func (s *Webhooks) CreateWebhook(ctx context.Context, e webhook.Endpoint, secret string) (webhook.Endpoint, error) {
	var row Row
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		applied, err := journal.AlreadyApplied(tx, journal.AuditProof)
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
			return database.Unavailable(err)
		}
		if len(others) >= webhook.MaxEndpoints {
			return webhook.ErrTooMany
		}
		now, err := database.Clock(tx)
		if err != nil {
			return err
		}
		row = Row{ID: e.ID, Secret: secret, Version: 1, CreatedAt: database.Micros(now), UpdatedAt: database.Micros(now)}
		row.take(e)
		if err := tx.Create(&row).Error; err != nil {
			return database.Unavailable(err)
		}
		return journal.Record(tx, dispatch.AuditWebhookCreate, string(e.ID), webhookChanges(webhook.Endpoint{}, row.endpoint()), now)
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return row.endpoint(), nil
}

// Webhooks returns all endpoints, the newest first.
func (s *Webhooks) Webhooks(ctx context.Context) ([]webhook.Endpoint, error) {
	var rows []Row
	if err := s.db.Serve.With(ctx).Where("status <> ?", deletedWebhook).Order("id DESC").Find(&rows).Error; err != nil {
		return nil, database.Unavailable(err)
	}
	return webhookEndpoints(rows), nil
}

func webhookEndpoints(rows []Row) []webhook.Endpoint {
	all := make([]webhook.Endpoint, len(rows))
	for i := range rows {
		all[i] = rows[i].endpoint()
	}
	return all
}

// Webhook returns the endpoint. webhook.ErrNotFound.
func (s *Webhooks) Webhook(ctx context.Context, id webhook.ID) (webhook.Endpoint, error) {
	row, err := findWebhook(s.db.Serve.With(ctx), id, "")
	return row.endpoint(), err
}

// findWebhook returns webhook.ErrNotFound also for an endpoint that is deleted.
func findWebhook(db database.Tx, id webhook.ID, locking string) (Row, error) {
	var rows []Row
	err := db.Raw("SELECT * FROM webhooks WHERE id = ? AND status <> ?"+locking, id, deletedWebhook).Scan(&rows).Error
	if err != nil {
		return Row{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Row{}, webhook.ErrNotFound
	}
	return rows[0], nil
}

// lockWebhook locks the endpoint's row until tx ends, and returns it and the database's time. webhook.ErrNotFound,
// with the time.
func (s *Webhooks) lockWebhook(tx database.Tx, id webhook.ID) (Row, time.Time, error) {
	row, err := findWebhook(tx, id, "{for_update}")
	if err != nil && !errors.Is(err, webhook.ErrNotFound) {
		return row, time.Time{}, err
	}
	now, clockErr := database.Clock(tx) // after the wait for the row's lock
	return row, now, errors.Join(err, clockErr)
}

// UpdateWebhook commits what change makes of the endpoint, or nothing. An endpoint that becomes active gets every
// event that is committed after that, and what was pending. webhook.ErrNotFound; change's own errors unchanged.
func (s *Webhooks) UpdateWebhook(ctx context.Context, id webhook.ID, change func(*webhook.Endpoint) error) (webhook.Endpoint, error) {
	stored, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookUpdate, func(row *Row, _ time.Time) (map[string]any, error) {
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
func (s *Webhooks) RotateWebhook(ctx context.Context, id webhook.ID, secret string) (webhook.Endpoint, error) {
	stored, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookRotate, func(row *Row, now time.Time) (map[string]any, error) {
		if row.Secret == secret {
			return nil, nil
		}
		previous, until := row.Secret, database.Micros(now.Add(webhook.RotationOverlap))
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
func (s *Webhooks) changeWebhook(ctx context.Context, id webhook.ID, action dispatch.AuditAction,
	change func(row *Row, now time.Time) (detail map[string]any, err error),
) (row Row, err error) {
	row, _, err = s.withWebhook(ctx, id, action, func(tx database.Tx, row *Row, now time.Time) (map[string]any, error) {
		detail, err := change(row, now)
		if err != nil || detail == nil {
			return nil, err
		}
		row.Version++
		row.UpdatedAt = database.Micros(now)
		return detail, database.Unavailable(tx.Model(&Row{}).Where("id = ?", id).Select("*").Omit("id", "created_at").Updates(row).Error)
	})
	return row, err
}

// withWebhook commits what do writes, with its audit entry, while the endpoint's row is locked, and returns the row. If
// do returns a nil detail there is no entry. Applied says that the request was carried out before: then do is not
// called. webhook.ErrNotFound; do's own errors unchanged.
func (s *Webhooks) withWebhook(ctx context.Context, id webhook.ID, action dispatch.AuditAction,
	do func(tx database.Tx, row *Row, now time.Time) (detail map[string]any, err error),
) (row Row, applied bool, err error) {
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		var now time.Time
		if row, now, err = s.lockWebhook(tx, id); err != nil {
			return err
		}
		if applied, err = journal.AlreadyApplied(tx, journal.AuditProof); applied || err != nil {
			return err
		}
		detail, err := do(tx, &row, now)
		if err != nil || detail == nil {
			return err
		}
		return journal.Record(tx, action, string(id), detail, now)
	})
	return row, applied, err
}

// DeleteWebhook deletes the endpoint. Prune deletes its deliveries. webhook.ErrNotFound.
func (s *Webhooks) DeleteWebhook(ctx context.Context, id webhook.ID) error {
	_, err := s.changeWebhook(ctx, id, dispatch.AuditWebhookDelete, func(row *Row, _ time.Time) (map[string]any, error) {
		detail := map[string]any{"url": auditedURL(row.URL)}
		*row = Row{Status: deletedWebhook, Events: row.Events, FailingSince: row.FailingSince, Version: row.Version}
		return detail, nil
	})
	return err
}

// webhookChanges returns the endpoint's changed fields by their names in the API, and nil if there are none.
func webhookChanges(from, to webhook.Endpoint) map[string]any {
	c := journal.Changes{}
	journal.AddChange(c, "url", auditedURL(from.URL), auditedURL(to.URL))
	if !slices.Equal(from.Events, to.Events) {
		c["events"] = map[string]any{"from": from.Events, "to": to.Events}
	}
	journal.AddChange(c, "description", journal.NullableText(from.Description), journal.NullableText(to.Description))
	journal.AddChange(c, "status", journal.NullableText(string(from.Status)), journal.NullableText(string(to.Status)))
	journal.AddChange(c, "pause_reason", journal.NullableText(string(from.PauseReason)), journal.NullableText(string(to.PauseReason)))
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

// tokenHash returns the beginning of a text's hash, nil for no text.
func tokenHash(token string) any {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:6])
}
