package handler

import (
	"context"
	"encoding/json"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

// auditStore reads the audit trail.
type auditStore interface {
	Audit(ctx context.Context, q dispatch.AuditQuery) ([]dispatch.AuditEntry, string, error)
}

type auditView struct {
	ID        string               `json:"id"`
	At        timestamp            `json:"at"`
	Actor     string               `json:"actor"`
	RequestID *string              `json:"request_id"`
	Action    dispatch.AuditAction `json:"action"`
	Target    string               `json:"target"`
	Detail    json.RawMessage      `json:"detail"`
}

func viewAudit(e dispatch.AuditEntry) auditView {
	return auditView{
		ID: e.ID, At: timestamp(e.At), Actor: e.Actor, RequestID: nullable(e.Request), Action: e.Action,
		Target: e.Target, Detail: json.RawMessage(e.Detail),
	}
}

func (h *handler) audit(c echo.Context, _ string) error {
	in := &query{c: c}
	q := dispatch.AuditQuery{Target: in.text("target"), Actor: c.QueryParam("actor"), Page: in.page(maxLimit)}
	if !isGraphic(q.Actor) {
		in.wrong("actor", "must be printable ASCII without spaces")
	}
	return list(h, in, viewAudit, func(ctx context.Context) ([]dispatch.AuditEntry, string, error) {
		return h.Stores.Audit.Audit(ctx, q)
	})
}
