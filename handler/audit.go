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
	p, err := page(c)
	if err != nil {
		return err
	}
	q := dispatch.AuditQuery{Page: p}
	if q.Target, err = textParam(c, "target"); err != nil {
		return err
	}
	if q.Actor = c.QueryParam("actor"); !isGraphic(q.Actor) {
		return invalidField("actor", "must be printable ASCII without spaces")
	}
	items, next, err := h.Stores.Audit.Audit(c.Request().Context(), q)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewAudit))
}
