package repositorytest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
)

// LastAudit returns the newest entry of that action.
func (db *Bench) LastAudit(t testing.TB, action dispatch.AuditAction) dispatch.AuditEntry {
	t.Helper()
	entries := db.Audited(t)
	i := slices.IndexFunc(entries, func(e dispatch.AuditEntry) bool { return e.Action == action })
	if i < 0 {
		t.Fatalf("no %s: %+v", action, entries)
	}
	return entries[i]
}

// Audited returns all entries, the newest first.
func (db *Bench) Audited(t testing.TB) []dispatch.AuditEntry {
	t.Helper()
	entries, next, err := db.Audit(t.Context(), dispatch.AuditQuery{Page: dispatch.Page{Limit: 200}})
	if err != nil || next != "" {
		t.Fatalf("%q, %v", next, err)
	}
	return entries
}

// Heard keeps the events that a Store announces.
type Heard struct {
	Mu     sync.Mutex
	About  []dispatch.Dispatch
	Events []dispatch.Event
	Stored []int // how many of the events were in the database when they were announced
}

// Listen has the Heard keep what the Bench's Store announces.
func (h *Heard) Listen(t testing.TB, db *Bench) {
	db.ListenTo(func(d dispatch.Dispatch, events []dispatch.Event) {
		h.Mu.Lock()
		defer h.Mu.Unlock()
		h.About, h.Events = append(h.About, d), append(h.Events, events...)
		for _, e := range events {
			h.Stored = append(h.Stored, db.Count(t, "events WHERE id = ?", e.ID))
		}
	})
}

// Types are the types of the events.
func (h *Heard) Types() (types []dispatch.EventType) {
	for _, e := range h.Events {
		types = append(types, e.Type)
	}
	return types
}

// Reserve reserves a request.
func (db *Bench) Reserve(t testing.TB, once idempotency.Request) idempotency.Reservation {
	t.Helper()
	r, err := db.ReserveRequest(t.Context(), once, time.Minute, 24*time.Hour)
	Must(t, err)
	return r
}

// MustAudit fails the test unless the audit trail has exactly these, as "action target", the oldest first.
func (db *Bench) MustAudit(t testing.TB, want ...string) []dispatch.AuditEntry {
	t.Helper()
	entries := db.Audited(t)
	var got []string
	for _, e := range entries {
		got = append([]string{fmt.Sprintf("%s %s", e.Action, e.Target)}, got...)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("audited %q, want %q", got, want)
	}
	return entries
}
