package migrations

import "context"

// UpTo applies what is missing up to version.
func (m *Migrator) UpTo(ctx context.Context, version int64) error {
	_, err := m.provider.UpTo(ctx, version)
	return err
}

// LastWithout is the last version that was also applied by a FirstTap without a journal.
const LastWithout = lastWithout

// Noted has every version be one that only a FirstTap with a journal applies.
func (m *Migrator) Noted() *Migrator {
	m.journal.lastWithout = 0
	return m
}
