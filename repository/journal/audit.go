package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/repository/database"
)

// AuditRow is a row of the table audit.
type AuditRow struct {
	ID        string `gorm:"primaryKey"`
	At        int64
	Actor     string
	RequestID string
	Action    dispatch.AuditAction
	Target    string
	Detail    string
}

// TableName implements gorm.Tabler.
func (AuditRow) TableName() string { return "audit" }

// Record writes the audit entry of what tx does. An entry is deleted by its age only, if the retention says so.
func Record(tx database.Tx, action dispatch.AuditAction, target string, detail map[string]any, now time.Time) error {
	if detail == nil {
		detail = map[string]any{}
	}
	encoded, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("audit of %s: %w", action, err)
	}
	ctx := tx.Statement.Context
	caller := dispatch.CallerFrom(ctx)
	return database.Unavailable(tx.Create(&AuditRow{
		ID: idempotency.AuditID(ctx, now), At: database.Micros(now), Actor: caller.Actor, RequestID: caller.Request,
		Action: action, Target: target, Detail: string(encoded),
	}).Error)
}

// Audit returns the audit entries that q selects, newest first, and the cursor of the next page, "" after the last. ErrBadCursor,
// ErrUnavailable.
func (s *Journal) Audit(ctx context.Context, q dispatch.AuditQuery) (items []dispatch.AuditEntry, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		of, index := database.Part{Where: "1 = 1"}, "PRIMARY"
		if q.Actor != "" {
			index, of.Where, of.Args = "ix_audit_actor", of.Where+" AND actor = ?", append(of.Args, q.Actor)
		}
		if q.Target != "" {
			index, of.Where, of.Args = "ix_audit_target", of.Where+" AND target = ?", append(of.Args, q.Target)
		}
		of.Select = "SELECT * FROM audit {force " + index + "}"
		l := database.Listing{Kind: database.AuditList, Prefix: dispatch.AuditPrefix, Parts: []database.Part{of}}
		rows, rest, err := database.ReadListing(db, l, q.Page, func(row *AuditRow) string { return database.Cursor(l.Kind, 0, row.ID) })
		items, next = make([]dispatch.AuditEntry, len(rows)), rest
		for i, row := range rows {
			items[i] = dispatch.AuditEntry{
				ID: row.ID, At: database.Time(row.At), Actor: row.Actor, Request: row.RequestID, Action: row.Action,
				Target: row.Target, Detail: row.Detail,
			}
		}
		return err
	})
	return items, next, err
}
