// Package repositorytest opens databases for the tests of the packages that use a repository.Store.
package repositorytest

import (
	"testing"

	"firsttap/migrations"
	"firsttap/repository"
)

// Open opens the database at url until the test ends.
func Open(t testing.TB, url string, options repository.Options) *repository.Store {
	t.Helper()
	s, err := repository.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// OpenMigrated is Open with the newest schema.
func OpenMigrated(t testing.TB, url string, options repository.Options) *repository.Store {
	t.Helper()
	s := Open(t, url, options)
	if err := s.Migrate(func(m *migrations.Migrator) error { _, err := m.Up(t.Context()); return err }); err != nil {
		t.Fatal(err)
	}
	return s
}
