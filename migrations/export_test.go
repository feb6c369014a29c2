package migrations

import (
	"context"
	"time"
)

// UpTo applies the missing migrations up to version.
func (m *Migrator) UpTo(ctx context.Context, version int64) error {
	if err := m.journal.createFirst(ctx); err != nil {
		return err
	}
	_, err := m.provider.UpTo(ctx, version)
	return err
}

// BeatAt makes m check its lock for each beat, and not every lockHeartbeat.
func (m *Migrator) BeatAt(beat <-chan struct{}) {
	m.untilHeartbeat = func(ctx context.Context) error {
		select {
		case <-beat:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// KeepSilentSessions has the server end the session of m's statements after so much silence, in whole seconds.
func (m *Migrator) KeepSilentSessions(silence time.Duration) { m.journal.silence = silence }

// LastUnjournaled is the last version that releases without a journal applied.
const LastUnjournaled = lastUnjournaled

// Journaled makes m take every version for one that was applied with a journal.
func (m *Migrator) Journaled() *Migrator {
	m.journal.lastUnjournaled = 0
	return m
}
