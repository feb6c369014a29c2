package webhook

import "errors"

var (
	// ErrNotFound says that there is no such endpoint.
	ErrNotFound = errors.New("no such webhook")
	// ErrDeliveryNotFound says that the endpoint has no such delivery.
	ErrDeliveryNotFound = errors.New("no such delivery")
	// ErrTooMany says that there are MaxEndpoints endpoints already.
	ErrTooMany = errors.New("there are as many webhooks as there may be")
	// ErrPaused says that the endpoint is paused, and gets nothing before it is active again.
	ErrPaused = errors.New("the webhook is paused; make it active first")
	// ErrVersionConflict says that the endpoint has changed since the version that the change is for.
	ErrVersionConflict = errors.New("the webhook has changed since that version")
	// ErrNotAllowed says that no delivery may be sent to an endpoint's URL: it is not https, or its address is not on the public Internet.
	// The text around it says which.
	ErrNotAllowed = errors.New("endpoint not allowed")
	// ErrNoAddress says that the name in an endpoint's URL has no address.
	ErrNoAddress = errors.New("the URL's host has no address")
	// ErrNotLookedUp says that no name server said whether the name in an endpoint's URL has an address.
	ErrNotLookedUp = errors.New("the URL's host could not be looked up")
)
