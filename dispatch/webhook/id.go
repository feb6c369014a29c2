package webhook

import (
	"strings"

	"firsttap/dispatch"
)

// DeliveryPrefix begins each DeliveryID.
const DeliveryPrefix = "whd_"

// ParseID returns s as an endpoint's identifier, or ErrNotFound if it is malformed.
func ParseID(s string) (ID, error) {
	if !strings.HasPrefix(s, dispatch.WebhookPrefix) || !dispatch.LooksLikeID(s) {
		return "", ErrNotFound
	}
	return ID(s), nil
}

// ParseDeliveryID returns s as a delivery's identifier, or ErrDeliveryNotFound if it is malformed.
func ParseDeliveryID(s string) (DeliveryID, error) {
	if !strings.HasPrefix(s, DeliveryPrefix) || !dispatch.LooksLikeID(s) {
		return "", ErrDeliveryNotFound
	}
	return DeliveryID(s), nil
}

// DeliveryOf returns the identifier of an event's delivery.
func DeliveryOf(event dispatch.EventID) DeliveryID {
	return DeliveryID(DeliveryPrefix + strings.TrimPrefix(string(event), dispatch.EventPrefix))
}

// Event returns the event that is delivered.
func (id DeliveryID) Event() dispatch.EventID {
	return dispatch.EventID(dispatch.EventPrefix + strings.TrimPrefix(string(id), DeliveryPrefix))
}
