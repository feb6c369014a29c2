package repository

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/servertest"
)

// TestDriverByFirebaseUID is by every byte: a database may take a space at the end for nothing, and a case for another.
func TestDriverByFirebaseUID(t *testing.T) {
	for name, url := range map[string]string{
		"sqlite": "sqlite://" + filepath.Join(t.TempDir(), "test.db"), "mariadb": servertest.MariaDBURL(t), "mysql": servertest.MySQLURL(t),
	} {
		store, err := Open(t.Context(), url, Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		if err := store.Migrate(func(m *migrations.Migrator) error { _, err := m.Up(t.Context()); return err }); err != nil {
			t.Fatal(err)
		}
		id := dispatch.NewDriverID(time.Now())
		err = store.AddDrivers(t.Context(), []dispatch.Driver{{
			ID: id, Name: "Kim", Phone: "+821000000000", Regions: []string{"seoul"}, VehicleClass: "45m", FirebaseUID: "Kim", Version: 1,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := store.DriverByFirebaseUID(t.Context(), "Kim"); err != nil || got != id {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		for _, uid := range []string{"", "kim", "Kim ", " Kim", "Kim\x00", "Ki", "Kím", "%"} {
			if got, err := store.DriverByFirebaseUID(t.Context(), uid); !errors.Is(err, dispatch.ErrDriverNotFound) || got != "" {
				t.Errorf("%s: %q is %q, %v", name, uid, got, err)
			}
		}
	}
}
