package notify

import (
	"context"
	"time"

	"firsttap/dispatch/outbox"
)

// Class classifies the outcome of one attempt to push.
type Class string

// The classes.
const (
	// Sent: the push service accepted the push.
	Sent Class = "sent"
	// DeadToken: the push service no longer knows the token.
	DeadToken Class = "dead_token"
	// BadToken: the token is malformed.
	BadToken Class = "bad_token"
	// WrongSender: the token belongs to another project.
	WrongSender Class = "wrong_sender"
	// Poison: the push service refused the payload, and will refuse it again.
	Poison Class = "poison"
	// Quota: too many requests; the push was not accepted.
	Quota Class = "quota"
	// Auth: our credentials are refused, as they will be for every push.
	Auth Class = "auth"
	// PlatformAuth: the push service's credentials for the device's platform are refused.
	PlatformAuth Class = "platform_auth"
	// Unavailable: the push service is overloaded or down; the push was not accepted.
	Unavailable Class = "unavailable"
	// Unreached: there was no connection, so the push was not accepted.
	Unreached Class = "unreached"
	// Unsure: the push may have been accepted.
	Unsure Class = "unsure"
)

// Outcome is the outcome of one attempt.
type Outcome struct {
	Class Class
	// RetryAfter is the wait that the push service asked for, 0 without one.
	RetryAfter time.Duration
	// Reason quotes the push service for operators, without the token.
	Reason string
}

// Sender sends pushes. One call makes one request, whatever its outcome. It is safe for concurrent use.
type Sender interface {
	// Send pushes p to its device, or to its topic.
	Send(ctx context.Context, p outbox.Push) Outcome
	// Subscribe subscribes up to 1,000 tokens to a topic, Unsubscribe unsubscribes them. With the outcome Sent, refused
	// holds the indexes of the tokens that the push service did not accept.
	Subscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome)
	Unsubscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome)
}
