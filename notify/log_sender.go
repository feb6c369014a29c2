package notify

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	"firsttap/dispatch/outbox"
)

// LogSender is a Sender that logs the pushes, for use without a push service. It is safe for concurrent use.
type LogSender struct{ log *slog.Logger }

var _ Sender = (*LogSender)(nil)

// NewLogSender returns a sender that logs visible pushes at level info and the others at level debug.
func NewLogSender(log *slog.Logger) *LogSender { return &LogSender{log} }

// Send implements Sender. The outcome is always Sent.
func (l *LogSender) Send(ctx context.Context, p outbox.Push) Outcome {
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

// Subscribe implements Sender. It refuses no token.
func (l *LogSender) Subscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome) {
	l.log.DebugContext(ctx, "subscribe", "topic", topic, "tokens", len(tokens))
	return nil, Outcome{Class: Sent}
}

// Unsubscribe implements Sender. It refuses no token.
func (l *LogSender) Unsubscribe(ctx context.Context, topic string, tokens []string) (refused []int, o Outcome) {
	l.log.DebugContext(ctx, "unsubscribe", "topic", topic, "tokens", len(tokens))
	return nil, Outcome{Class: Sent}
}

// Close does nothing.
func (l *LogSender) Close() {}

const (
	shownOfToken = 6
	shortToken   = 16
)

// MaskToken returns a form of a push token that may be logged: its first characters and its length, or only the length of
// a token so short that the rest could be guessed.
func MaskToken(token string) string {
	shown := ""
	if len(token) >= shortToken {
		shown = strings.ToValidUTF8(token[:shownOfToken], "")
	}
	return shown + "…" + strconv.Itoa(len(token))
}
