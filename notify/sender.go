package notify

import (
	"context"
	"time"

	"firsttap/outbox"
)

// Class is what one attempt to push came to.
type Class string

// The classes.
const (
	// Sent: the push service took it.
	Sent Class = "sent"
	// DeadToken: the push service no longer knows the token.
	DeadToken Class = "dead_token"
	// BadToken: it never was a token.
	BadToken Class = "bad_token"
	// WrongSender: the token belongs to another project.
	WrongSender Class = "wrong_sender"
	// Poison: the payload was refused, and will be again.
	Poison Class = "poison"
	// Quota: too many; nothing was taken.
	Quota Class = "quota"
	// Auth: our credentials are refused, and will be for every push.
	Auth Class = "auth"
	// PlatformAuth: the push service's credentials for the device's platform are refused.
	PlatformAuth Class = "platform_auth"
	// Unavailable: the push service says that it can't now; it took nothing.
	Unavailable Class = "unavailable"
	// Unreached: there was no connection, so the push service knows nothing of it.
	Unreached Class = "unreached"
	// Unsure: it may have been taken.
	Unsure Class = "unsure"
)

// Outcome is what one attempt came to.
type Outcome struct {
	Class Class
	// RetryAfter is what the push service asked for, 0 if nothing.
	RetryAfter time.Duration
	// Reason is for operators: the push service's words, without the token.
	Reason string
}

// Sender pushes. One call is one request, whatever comes of it. Safe for concurrent use.
type Sender interface {
	// Send pushes p to its device, or to its topic.
	Send(ctx context.Context, p outbox.Push) Outcome
	// Subscribe makes up to 1,000 tokens hear a topic, Unsubscribe no longer. Where the outcome is Sent, refused are the
	// indexes of the tokens that the push service did not take.
	Subscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome)
	Unsubscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome)
}
