// Package repositorytest opens databases for the tests of the packages that use a repository.Store.
package repositorytest

import (
	"context"
	"errors"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
	"firsttap/repository"
)

// URL is a migrated database of the test's own, without rows: see [servertest.Migrated].
func URL(t testing.TB, kind string) string {
	t.Helper()
	return servertest.Migrated(t, kind, Migrate)
}

// Migrate gives the database at url the newest schema, with the stored procedure: a database that a test had to give one would not be
// used again.
func Migrate(t testing.TB, url string) {
	t.Helper()
	s, err := repository.Open(t.Context(), url, repository.Options{Patience: testkit.Patience})
	if err == nil {
		err = s.Migrate(func(m *migrations.Migrator) error { _, err := m.Up(t.Context()); return err })
		s.Dispatches.PrepareClaims(t.Context())
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Open opens the database at url until the test ends. Unless options say otherwise it is patient, so that a busy machine does not
// look like a held row.
func Open(t testing.TB, url string, options repository.Options) *repository.Store {
	t.Helper()
	if options.Patience == 0 {
		options.Patience = testkit.Patience
	}
	s, err := repository.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Up applies all migrations.
func Up(ctx context.Context, s *repository.Store) error {
	return s.Migrate(func(m *migrations.Migrator) error { return ErrorOf(m.Up(ctx)) })
}
