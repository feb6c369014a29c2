package migrations

import "context"

// UpTo applies what is missing up to version.
func (m *Migrator) UpTo(ctx context.Context, version int64) error {
	_, err := m.provider.UpTo(ctx, version)
	return err
}

// LastUnjournaled is the last version that was also applied by a FirstTap without a journal.
const LastUnjournaled = lastUnjournaled

// Journaled has every version be one that only a FirstTap with a journal applies.
func (m *Migrator) Journaled() *Migrator {
	m.journal.lastUnjournaled = 0
	return m
}
