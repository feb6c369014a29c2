package handler

import (
	"context"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
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

func (h *handler) dispatchNotifications(c echo.Context, _ string, id dispatch.ID) error {
	in, ctx := &query{c: c}, c.Request().Context()
	p := in.page(maxLimit)
	if in.err != nil {
		return in.err
	}
	rounds, forgotten, err := h.Stores.Offers.Funnel(ctx, id)
	if err != nil {
		return err
	}
	items, next, err := h.Stores.Notifications.Notifications(ctx, id, p)
	view := dispatchNotificationsView{viewList(items, next, h.Now(), viewNotification), make([]funnelView, len(rounds))}
	for i, f := range rounds {
		view.Funnel[i] = funnelView{Round: i + 1, Seen: f.Seen, Tapped: f.Tapped, Won: f.Won}
		if i >= forgotten {
			view.Funnel[i].Told, view.Funnel[i].AcceptedByFCM = &f.Notified, &f.PushAccepted
		}
	}
	return respond(c, 200, view, err)
}

func (h *handler) notifications(c echo.Context, _ string) error {
	in := &query{c: c}
	page, s := in.page(maxLimit), status(in, "notification", is(outbox.Pending, outbox.Sent, outbox.Dead, outbox.Dropped))
	return list(h, in, viewNotification, func(ctx context.Context) ([]outbox.Notification, string, error) {
		return h.Stores.Notifications.NotificationsBy(ctx, s, page)
	})
}

func (h *handler) redrive(c echo.Context, _ string, id dispatch.NotificationID) error {
	if err := readNothing(c); err != nil {
		return err
	}
	n, err := h.Stores.Notifications.Redrive(c.Request().Context(), id)
	if err == nil {
		h.OnDue()
	}
	return respond(c, 200, viewNotification(n), err)
}
