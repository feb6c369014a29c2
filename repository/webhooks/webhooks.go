package webhooks

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
	"firsttap/repository/journal"
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

// CreateWebhook writes an endpoint. It gets every event that is written after it. If the request was carried out before, CreateWebhook
// returns its endpoint as it is now; idempotency.ErrKeyReused if that has another secret. webhook.ErrTooMany.
func (s *Webhooks) CreateWebhook(ctx context.Context, e webhook.Endpoint, secret string) (webhook.Endpoint, error) {
	var row Row
	err := s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		applied, err := journal.AlreadyApplied(tx, journal.AuditProof)
		if err != nil {
			return err
		}
		if applied {
			row, err = findWebhook(tx, e.ID, "")
			if err == nil && row.Secret != secret {
				return idempotency.ErrKeyReused
			}
			return err
		}
		var others []webhook.ID // locked, so that two creations at once do not exceed the limit together
		if err := tx.Raw("SELECT id FROM webhooks ORDER BY id {for_update}").Scan(&others).Error; err != nil {
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
	if err := s.db.Serve.With(ctx).Order("id DESC").Find(&rows).Error; err != nil {
		return nil, database.Unavailable(err)
	}
	return endpoints(rows), nil
}

func endpoints(rows []Row) []webhook.Endpoint {
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

// findWebhook returns the endpoint's row, and locks it if locking is {for_update}. webhook.ErrNotFound.
func findWebhook(db database.Tx, id webhook.ID, locking string) (Row, error) {
	var rows []Row
	if err := db.Raw("SELECT * FROM webhooks WHERE id = ? "+locking, id).Scan(&rows).Error; err != nil {
		return Row{}, database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Row{}, webhook.ErrNotFound
	}
	return rows[0], nil
}

// change commits what do makes of the endpoint's row and what else it writes, with an audit entry, while the row is
// locked, and returns the row as it is then. If do returns a nil detail nothing is written. If the request was carried
// out before, do is not called. webhook.ErrNotFound; do's own errors unchanged.
func (s *Webhooks) change(ctx context.Context, id webhook.ID, action dispatch.AuditAction,
	do func(tx database.Tx, row *Row, now time.Time) (detail map[string]any, err error),
) (row Row, err error) {
	err = s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		if row, err = findWebhook(tx, id, "{for_update}"); err != nil {
			return err
		}
		now, err := database.Clock(tx) // after the wait for the row's lock
		if err != nil {
			return err
		}
		if applied, err := journal.AlreadyApplied(tx, journal.AuditProof); applied || err != nil {
			return err
		}
		before := row
		detail, err := do(tx, &row, now)
		if err != nil || detail == nil {
			return err
		}
		if row != before {
			row.Version++
			row.UpdatedAt = database.Micros(now)
			if err := tx.Select("*").Updates(&row).Error; err != nil {
				return database.Unavailable(err)
			}
		}
		return journal.Record(tx, action, string(id), detail, now)
	})
	return row, err
}

// UpdateWebhook commits what change makes of the endpoint, or nothing. An endpoint that becomes active gets every
// event that is written after that, and what was pending. webhook.ErrNotFound; change's own errors unchanged.
func (s *Webhooks) UpdateWebhook(ctx context.Context, id webhook.ID, change func(*webhook.Endpoint) error) (webhook.Endpoint, error) {
	row, err := s.change(ctx, id, dispatch.AuditWebhookUpdate, func(_ database.Tx, row *Row, _ time.Time) (map[string]any, error) {
		before, after := row.endpoint(), row.endpoint()
		if err := change(&after); err != nil {
			return nil, err
		}
		row.take(after)
		return webhookChanges(before, after), nil
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return row.endpoint(), nil
}

// RotateWebhook replaces the endpoint's secret; the one before signs too for webhook.RotationOverlap. Repeated with
// the same secret it changes nothing. webhook.ErrNotFound; idempotency.ErrKeyReused if the request was carried out
// before, and the endpoint has another secret now.
func (s *Webhooks) RotateWebhook(ctx context.Context, id webhook.ID, secret string) (webhook.Endpoint, error) {
	row, err := s.change(ctx, id, dispatch.AuditWebhookRotate, func(_ database.Tx, row *Row, now time.Time) (map[string]any, error) {
		if row.Secret == secret {
			return nil, nil
		}
		previous, until := row.Secret, database.Micros(now.Add(webhook.RotationOverlap))
		row.Secret, row.PreviousSecret, row.PreviousUntil = secret, &previous, &until
		return map[string]any{}, nil
	})
	if err == nil && row.Secret != secret {
		err = idempotency.ErrKeyReused
	}
	return row.endpoint(), err
}

// DeleteWebhook deletes the endpoint. What is pending is not sent; deliveries stay until they are older than
// KeepDeliveries. webhook.ErrNotFound.
func (s *Webhooks) DeleteWebhook(ctx context.Context, id webhook.ID) error {
	_, err := s.change(ctx, id, dispatch.AuditWebhookDelete, func(tx database.Tx, row *Row, _ time.Time) (map[string]any, error) {
		return map[string]any{"url": auditedURL(row.URL)}, database.Unavailable(tx.Delete(row).Error)
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

// auditedURL is the URL as the audit has it: its host, and the beginning of a hash, as the rest is often a secret. Nil for no URL.
func auditedURL(text string) any {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return nil
	}
	hash := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s://%s/... (%x)", u.Scheme, u.Host, hash[:6])
}
