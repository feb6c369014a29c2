package handler

import (
	"context"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// notificationStore reads notifications and redrives dead ones.
type notificationStore interface {
	Notifications(ctx context.Context, id dispatch.ID, page dispatch.Page) ([]outbox.Notification, string, error)
	NotificationsBy(ctx context.Context, status outbox.Status, page dispatch.Page) ([]outbox.Notification, string, error)
	Redrive(ctx context.Context, id dispatch.NotificationID) (outbox.Notification, error)
}

type notificationView struct {
	ID         dispatch.NotificationID `json:"id"`
	EventID    dispatch.EventID        `json:"event_id"`
	Type       dispatch.EventType      `json:"type"`
	DispatchID dispatch.ID             `json:"dispatch_id"`
	Round      int                     `json:"round"`
	DriverID   *string                 `json:"driver_id"`
	DeviceID   *string                 `json:"device_id"`
	Topic      *string                 `json:"topic"`
	Silent     bool                    `json:"silent"`
	Status     outbox.Status           `json:"status"`
	Attempts   int                     `json:"attempts"`
	Result     *string                 `json:"result"`
	Reason     *string                 `json:"reason"`
	CreatedAt  timestamp               `json:"created_at"`
	NextAt     *timestamp              `json:"next_at"`
	SentAt     *timestamp              `json:"sent_at"`
	ExpiresAt  timestamp               `json:"expires_at"`
	// DelayMS is the time from the event until the push service accepted the notification.
	DelayMS *float64 `json:"delay_ms"`
}

func viewNotification(n outbox.Notification) notificationView {
	v := notificationView{
		ID: n.ID, EventID: n.Event, Type: n.Type, DispatchID: n.Dispatch, Round: n.Round,
		DriverID: nullable(string(n.Driver)), DeviceID: nullable(string(n.Device)), Topic: nullable(n.Topic),
		Silent: n.Silent, Status: n.Status, Attempts: n.Attempts, Result: nullable(n.Result), Reason: nullable(n.Reason),
		CreatedAt: timestamp(n.CreatedAt), NextAt: optionalTimestamp(n.NextAt), SentAt: optionalTimestamp(n.SentAt),
		ExpiresAt: timestamp(n.UsefulUntil),
	}
	if n.SentAt != nil {
		delay := float64(n.SentAt.Sub(n.EventAt).Microseconds()) / 1000
		v.DelayMS = &delay
	}
	return v
}

// funnelView counts drivers. Told and accepted_by_fcm are null once the notifications are deleted.
type funnelView struct {
	Round         int  `json:"round"`
	Told          *int `json:"told"`
	AcceptedByFCM *int `json:"accepted_by_fcm"`
	Seen          int  `json:"seen"`
	Tapped        int  `json:"tapped"`
	Won           int  `json:"won"`
}

type dispatchNotificationsView struct {
	listView[notificationView]
	Funnel []funnelView `json:"funnel"`
}

func (h *handler) dispatchNotifications(c echo.Context, _ string) error {
	id, err := dispatchID(c)
	if err != nil {
		return err
	}
	p, err := page(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	rounds, forgotten, err := h.Stores.Offers.Funnel(ctx, id)
	if err != nil {
		return err
	}
	items, next, err := h.Stores.Notifications.Notifications(ctx, id, p)
	if err != nil {
		return err
	}
	view := dispatchNotificationsView{
		listView: viewList(items, next, h.Now(), viewNotification), Funnel: make([]funnelView, len(rounds)),
	}
	for i, f := range rounds {
		view.Funnel[i] = funnelView{Round: i + 1, Seen: f.Seen, Tapped: f.Tapped, Won: f.Won}
		if i >= forgotten {
			view.Funnel[i].Told, view.Funnel[i].AcceptedByFCM = &f.Notified, &f.PushAccepted
		}
	}
	return writeJSON(c, 200, view)
}

func (h *handler) notifications(c echo.Context, _ string) error {
	p, err := page(c)
	if err != nil {
		return err
	}
	s := outbox.Status(c.QueryParam("status"))
	switch s {
	case "", outbox.Pending, outbox.Sent, outbox.Dead, outbox.Dropped:
	default:
		return invalidField("status", "is not a state of a notification")
	}
	items, next, err := h.Stores.Notifications.NotificationsBy(c.Request().Context(), s, p)
	if err != nil {
		return err
	}
	return writeJSON(c, 200, viewList(items, next, h.Now(), viewNotification))
}

func (h *handler) redrive(c echo.Context, _ string) error {
	id, err := dispatch.ParseNotificationID(c.Param("id"))
	if err != nil {
		return err
	}
	if _, err := readOptional[struct{}](c); err != nil {
		return err
	}
	n, err := h.Stores.Notifications.Redrive(c.Request().Context(), id)
	if err != nil {
		return err
	}
	h.OnDue()
	return writeJSON(c, 200, viewNotification(n))
}
