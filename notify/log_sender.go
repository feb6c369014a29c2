package notify

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	"firsttap/outbox"
)

// Log is the sender where no push service is set up: it logs what would be pushed. It is safe for concurrent use.
type Log struct{ log *slog.Logger }

var _ Sender = (*Log)(nil)

// NewLog returns a sender that writes visible pushes to log at level info, the others at debug.
func NewLog(log *slog.Logger) *Log { return &Log{log} }

// Send implements Sender. The outcome is always Sent.
func (l *Log) Send(ctx context.Context, p outbox.Push) Outcome {
	level := slog.LevelInfo
	if p.Silent {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("type", string(p.Type)), slog.String("dispatch", string(p.Dispatch.ID)), slog.Int("round", p.Round),
	}
	if p.Topic != "" {
		attrs = append(attrs, slog.String("topic", p.Topic))
	} else {
		attrs = append(attrs, slog.String("driver", string(p.Driver)), slog.String("token", MaskToken(p.Device.PushToken)))
	}
	l.log.LogAttrs(ctx, level, "push", attrs...)
	return Outcome{Class: Sent}
}

// Subscribe implements Sender. Nothing is refused.
func (l *Log) Subscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome) {
	l.log.DebugContext(ctx, "subscribe", "topic", topic, "tokens", len(tokens))
	return nil, Outcome{Class: Sent}
}

// Unsubscribe implements Sender. Nothing is refused.
func (l *Log) Unsubscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome) {
	l.log.DebugContext(ctx, "unsubscribe", "topic", topic, "tokens", len(tokens))
	return nil, Outcome{Class: Sent}
}

// Close does nothing: there is no connection.
func (l *Log) Close() {}

const (
	shownOfToken = 6
	shortToken   = 16
)

// MaskToken returns what of a push token may be logged: its first characters and its length, or only the length where the
// rest could be guessed.
func MaskToken(token string) string {
	shown := ""
	if len(token) >= shortToken {
		shown = strings.ToValidUTF8(token[:shownOfToken], "")
	}
	return shown + "…" + strconv.Itoa(len(token))
}
