package redisclient

import (
	"log/slog"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// The library's messages are lines of the service's log at level debug, and not text on stderr.
func TestLogTo(t *testing.T) {
	var log testkit.LogBuffer
	LogTo(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { LogTo(slog.New(slog.DiscardHandler)) })
	client, err := Dial("redis://"+testkit.FreeAddress(t), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for log.Count("level=DEBUG msg=\"the Redis library reports: ") == 0 {
		if err := client.Ping(t.Context()).Err(); err == nil {
			t.Fatal("an address without a server answers")
		}
	}
}
