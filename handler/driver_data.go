package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
)

// erasureStore erases a driver's data.
type erasureStore interface {
	EraseDriver(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, dispatch.Revocation, error)
}

// exportAuditStore writes to the audit trail that a driver's data was exported.
type exportAuditStore interface {
	RecordExport(ctx context.Context, id dispatch.DriverID) (dispatch.DriverRecord, error)
}

// exportStore reads all of a driver's data. The sequences end with an error if they can't be read to their end.
type exportStore interface {
	ClaimsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.DriversClaim, error]
	EventsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Event, error]
	OfferMarksOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.OfferMarks, error]
	NotificationsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[outbox.Notification, error]
	TapsOf(ctx context.Context, id dispatch.DriverID) iter.Seq2[dispatch.Attempt, error]
}

func (h *handler) eraseDriver(c echo.Context, _ string, id dispatch.DriverID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	v, revoked, err := h.Stores.Erasure.EraseDriver(c.Request().Context(), id)
	if err == nil {
		h.Revocations.Learn(revoked)
		h.Streams.DriverChanged(v.Driver)
	}
	return done(c, 204, err)
}

// The parts of an export. They have no push token, no secret and no other person: of an entry of the audit by an admin, the key.
type (
	exportedClaim struct {
		ID         dispatch.ClaimID `json:"id"`
		DispatchID dispatch.ID      `json:"dispatch_id"`
		Round      int              `json:"round"`
		Outcome    dispatch.Outcome `json:"outcome"`
		AcceptedAt timestamp        `json:"accepted_at"`
		EndedAt    *timestamp       `json:"ended_at"`
	}
	exportedEvent struct {
		ID         dispatch.EventID   `json:"id"`
		DispatchID dispatch.ID        `json:"dispatch_id"`
		Type       dispatch.EventType `json:"type"`
		Round      int                `json:"round"`
		Actor      string             `json:"actor"`
		ReasonCode *string            `json:"reason_code"`
		RequestID  *string            `json:"request_id"`
		At         timestamp          `json:"at"`
	}
	exportedOffer struct {
		DispatchID    dispatch.ID `json:"dispatch_id"`
		Round         int         `json:"round"`
		SeenAt        *timestamp  `json:"seen_at"`
		DeclinedAt    *timestamp  `json:"declined_at"`
		DeclineReason *string     `json:"decline_reason"`
	}
	exportedTap struct {
		ID         dispatch.AttemptID     `json:"id"`
		DispatchID dispatch.ID            `json:"dispatch_id"`
		Round      int                    `json:"round"`
		Result     dispatch.AttemptResult `json:"result"`
		At         timestamp              `json:"at"`
		LastAt     timestamp              `json:"last_at"`
		Count      int                    `json:"count"`
		AppVersion *string                `json:"app_version"`
	}
)

func exportClaim(k dispatch.DriversClaim) exportedClaim {
	return exportedClaim{k.ID, k.Dispatch, k.Round, k.Outcome, timestamp(k.AcceptedAt), optionalTimestamp(k.EndedAt)}
}

func exportOffer(m dispatch.OfferMarks) exportedOffer {
	return exportedOffer{m.Dispatch, m.Round, optionalTimestamp(m.SeenAt), optionalTimestamp(m.DeclinedAt), nullable(m.DeclineReason)}
}

func exportTap(t dispatch.Attempt) exportedTap {
	return exportedTap{t.ID, t.Dispatch, t.Round, t.Result, timestamp(t.At), timestamp(t.LastAt), t.Count, nullable(t.AppVersion)}
}

// exportEvent returns the view of an event. It leaves out the request's identifier unless the driver made the request.
func exportEvent(me dispatch.DriverID) func(dispatch.Event) exportedEvent {
	return func(e dispatch.Event) exportedEvent {
		v := exportedEvent{
			ID:         e.ID,
			DispatchID: e.Dispatch,
			Type:       e.Type,
			Round:      e.Round,
			Actor:      e.Actor,
			ReasonCode: nullable(e.ReasonCode),
			At:         timestamp(e.At),
		}
		if e.Actor == string(me) {
			v.RequestID = nullable(e.Request)
		}
		return v
	}
}

// exportEntry returns the view of an audit entry. The view has the request's identifier only if the driver made the request. The view never
// names another driver, who had the same push token before.
func exportEntry(me dispatch.DriverID) func(dispatch.AuditEntry) auditView {
	return func(e dispatch.AuditEntry) auditView {
		if e.Actor != string(me) {
			e.Request = ""
		}
		detail := map[string]any{}
		if json.Unmarshal([]byte(e.Detail), &detail) == nil && withoutOthers(detail) {
			if cut, err := json.Marshal(detail); err == nil {
				e.Detail = string(cut)
			}
		}
		return viewAudit(e)
	}
}

// withoutOthers deletes the previous owner of a push token, also from the last and the further changes of a coalesced entry.
func withoutOthers(detail map[string]any) (changed bool) {
	for field, value := range detail {
		if inner, ok := value.(map[string]any); ok {
			changed = withoutOthers(inner) || changed
		}
		if field == "token_was_of" {
			delete(detail, field)
			changed = true
		}
	}
	return changed
}

// exportDriver writes the export as it reads it, so that its size costs no memory. If reading fails in between, the JSON
// ends early. A complete export ends with the member "complete".
func (h *handler) exportDriver(c echo.Context, actor string, id dispatch.DriverID) error {
	return h.exports.run(c, actor, func() error {
		ctx := c.Request().Context()
		v, err := h.Stores.ExportAudit.RecordExport(ctx, id)
		if err != nil {
			return err
		}
		header := c.Response().Header()
		header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		header.Set(echo.HeaderContentDisposition, `attachment; filename="`+string(id)+`.json"`)
		w := newExportWriter(c.Response())
		if err = h.writeExport(ctx, w, v); err == nil {
			err = w.Flush()
		}
		if err != nil && !c.Response().Committed { // nothing was sent yet
			header.Del(echo.HeaderContentDisposition)
			return err
		}
		if err != nil && !hungUp(ctx) {
			h.Log.Warn("export of a driver ended early; its JSON is not complete, and the admin must ask again", "driver", id,
				"request_id", requestID(c), "error", err)
		}
		return nil
	})
}

func (h *handler) writeExport(ctx context.Context, w *bufio.Writer, v dispatch.DriverRecord) error {
	store := h.Stores.Export
	devices := pagesOf(func(p dispatch.Page) ([]dispatch.Device, string, error) {
		return h.Stores.Devices.Devices(ctx, v.ID, p)
	})
	entries := pagesOf(func(p dispatch.Page) ([]dispatch.AuditEntry, string, error) {
		return h.Stores.Audit.Audit(ctx, dispatch.AuditQuery{Target: string(v.ID), Page: p})
	})
	_, _ = w.WriteString(`{"exported_at":`) // an error of the writer stays its error
	for _, export := range []func() error{
		func() error { return json.NewEncoder(w).Encode(timestamp(h.Now())) },
		func() error {
			_, _ = w.WriteString(`,"driver":`)
			return json.NewEncoder(w).Encode(viewDriverRecord(v))
		},
		func() error { return exportAll(w, "devices", devices, viewDriverDevice) },
		func() error { return exportAll(w, "claims", store.ClaimsOf(ctx, v.ID), exportClaim) },
		func() error { return exportAll(w, "events", store.EventsOf(ctx, v.ID), exportEvent(v.ID)) },
		func() error { return exportAll(w, "offers", store.OfferMarksOf(ctx, v.ID), exportOffer) },
		func() error { return exportAll(w, "taps", store.TapsOf(ctx, v.ID), exportTap) },
		func() error { return exportAll(w, "notifications", store.NotificationsOf(ctx, v.ID), viewNotification) },
		func() error { return exportAll(w, "audit", entries, exportEntry(v.ID)) },
	} {
		if err := export(); err != nil {
			return err
		}
	}
	_, err := w.WriteString(`,"complete":true}`)
	return err
}

// exportPage is how many items of a list an export reads at a time.
const exportPage = 200

// pagesOf is the sequence of a list's items.
func pagesOf[T any](read func(dispatch.Page) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for p := (dispatch.Page{Limit: exportPage}); ; {
			items, next, err := read(p)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if p.Cursor = next; next == "" {
				return
			}
		}
	}
}

// exportAll writes the items as a member of the export.
func exportAll[T, V any](w *bufio.Writer, name string, items iter.Seq2[T, error], view func(T) V) error {
	_, _ = w.WriteString(`,"` + name + `":[`)
	separator := ""
	for item, err := range items {
		if err != nil {
			return err
		}
		_, _ = w.WriteString(separator)
		if err := json.NewEncoder(w).Encode(view(item)); err != nil {
			return err
		}
		separator = ","
	}
	_, err := w.WriteString("]")
	return err
}

const (
	// exportBuffer is how much of an export is sent at a time.
	exportBuffer = 32 << 10
	// exportTime is how long an export may take. Few exports run at a time, so one that is read slowly makes others wait.
	exportTime = 5 * time.Minute
)

// exportWriter sends an export. The server's deadline is for answers of limited length; an export has one for each part instead.
type exportWriter struct {
	http.ResponseWriter
	conn *http.ResponseController
	// until is when the whole export must have been written.
	until time.Time
}

func newExportWriter(to http.ResponseWriter) *bufio.Writer {
	return bufio.NewWriterSize(&exportWriter{to, http.NewResponseController(to), time.Now().Add(exportTime)}, exportBuffer)
}

// Write implements io.Writer.
func (w *exportWriter) Write(b []byte) (int, error) {
	deadline := time.Now().Add(writeTimeout)
	if deadline.After(w.until) {
		deadline = w.until
	}
	if err := w.conn.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}
