package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/lock/locktest"
)

// At debug the log says what a lock does: that it is acquired and until when, extended, not acquired because another owner holds it, released,
// and that it will be released when its least hold is over.
func TestDebugLines(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := &testkit.LogBuffer{}
		l := lock.New(lock.NewMemory(), lock.Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		defer l.Close()
		saysOnly := func(step string, want ...string) {
			t.Helper()
			text := &testkit.LogBuffer{}
			_, _ = text.Write([]byte(log.Drain()))
			if text.Count("\n") != len(want) {
				t.Errorf("%s: %d lines, want %d:\n%s", step, text.Count("\n"), len(want), text)
			}
			for _, line := range want {
				if text.Count(line) != 1 {
					t.Errorf("%s: the log does not say %q:\n%s", step, line, text)
				}
			}
		}
		err := l.Do(t.Context(), "renewed", lock.Renewed(3*time.Second, time.Minute), func(ctx context.Context) error {
			saysOnly("it begins", `msg="lock acquired" name=renewed`)
			if err := l.Do(context.Background(), "renewed", lock.Fixed(time.Second), nil); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("another owner gets %v", err)
			}
			saysOnly("another owner asks", `msg="lock not acquired, because another owner holds it" name=renewed`)
			time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // in a bubble of testing/synctest
			saysOnly("it is renewed", `msg="lock extended" name=renewed`)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		saysOnly("it ends", `msg="lock released" name=renewed`)
		if err := l.Do(t.Context(), "kept", lock.Between(time.Second, time.Minute), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		saysOnly("it is kept", `msg="lock acquired" name=kept`, `msg="lock will be released when its least hold is over" name=kept`)
	})
}

// A test of work that calls AssertHeld makes the context that the work wants with locktest.Held.
func TestHeld(t *testing.T) {
	if err := lock.AssertHeld(locktest.Held(t, "mine"), "mine"); err != nil {
		t.Error(err)
	}
	if err := lock.AssertHeld(locktest.Held(t, "mine"), "other"); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("another name gets %v", err)
	}
}
