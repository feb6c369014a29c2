package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/idempotency"
)

type auditRow struct {
	ID        string `gorm:"primaryKey"`
	At        int64
	Actor     string
	RequestID string
	Action    dispatch.AuditAction
	Target    string
	Detail    string
}

func (auditRow) TableName() string { return "audit" }

func (row *auditRow) entry() dispatch.AuditEntry {
	return dispatch.AuditEntry{
		ID: row.ID, At: fromMicros(row.At), Actor: row.Actor, Request: row.RequestID, Action: row.Action,
		Target: row.Target, Detail: row.Detail,
	}
}

// audit writes the audit entry of what tx does. An entry is deleted by its age only, if the retention says so.
func audit(tx *gorm.DB, action dispatch.AuditAction, target string, detail map[string]any, now time.Time) error {
	if detail == nil {
		detail = map[string]any{}
	}
	encoded, err := encodeDetail(detail)
	if err != nil {
		return fmt.Errorf("audit of %s: %w", action, err)
	}
	ctx := tx.Statement.Context
	caller := dispatch.CallerFrom(ctx)
	return unavailable(tx.Create(&auditRow{
		ID: idempotency.AuditID(ctx, now), At: micros(now), Actor: caller.Actor, RequestID: caller.Request,
		Action: action, Target: target, Detail: encoded,
	}).Error)
}

// RecordSignIn audits a sign-in with the key from the address, in one entry a minute. ErrKeyNotFound. The sign-in must be
// refused unless the error is nil.
func (s *Store) RecordSignIn(ctx context.Context, key, address string) error {
	return s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		_, now, err := s.lockKey(tx, key)
		if err != nil {
			return err
		}
		return auditCoalesced(tx, dispatch.AuditSignIn, key, map[string]any{"address": address}, now)
	})
}

// RecordRefusedSignIns audits refused sign-ins, in one entry for each address.
func (s *Store) RecordRefusedSignIns(ctx context.Context, all []dispatch.RefusedSignIns) error {
	ctx = dispatch.WithCaller(ctx, dispatch.Caller{Actor: dispatch.AuditUnknown})
	return s.transactWithRetry(ctx, s.decide, func(tx *gorm.DB) error {
		now, err := s.clock(tx)
		if err != nil {
			return err
		}
		for _, r := range all {
			detail := map[string]any{"failed": r.Failed, "limited": r.Limited, "doors": r.ByMethod}
			if err := audit(tx, dispatch.AuditSignInRefused, r.Address, detail, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// Audit returns the audit entries that q selects, newest first, and the cursor of the next page, "" after the last.
func (s *Store) Audit(ctx context.Context, q dispatch.AuditQuery) (items []dispatch.AuditEntry, next string, err error) {
	err = s.list(ctx, func(db *gorm.DB) error {
		items, next, err = s.listAudit(db, q)
		return err
	})
	return items, next, err
}

func (s *Store) listAudit(db *gorm.DB, q dispatch.AuditQuery) ([]dispatch.AuditEntry, string, error) {
	if q.Target != "" {
		db = db.Where("target = ?", q.Target)
	}
	if q.Actor != "" {
		db = db.Where("actor = ?", q.Actor)
	}
	rows, next, err := newestFirst(db, auditList, "id", q.Page, func(row *auditRow) string { return row.ID })
	items := make([]dispatch.AuditEntry, len(rows))
	for i := range rows {
		items[i] = rows[i].entry()
	}
	return items, next, err
}
