package lock

import (
	"errors"
	"testing"
	"time"

	"firsttap/internal/servertest"
)

// Whatever a server's settings are, and though the caller's config sets nothing, a session keeps its name, and no other gets it.
func TestSessionsOnAServerWithOtherSettings(t *testing.T) {
	onEachOwnServer(t, func(t *testing.T, _ *servertest.Database, db *testDB) {
		for _, s := range []string{
			"completion_type = 2", "autocommit = 0", "transaction_isolation = 'SERIALIZABLE'", "tx_isolation = 'SERIALIZABLE'", "transaction_read_only = 1",
			"tx_read_only = 1", "idle_transaction_timeout = 1", "idle_write_transaction_timeout = 1",
		} {
			const unknownVariable = 1193
			if _, err := db.Exec("SET GLOBAL " + s); err != nil && !isMySQL(err, unknownVariable) {
				t.Fatal(err)
			}
		}
		for name, pick := range sessionStrategies {
			one, other := pick(open(t, db.config, 5*time.Second, 2)), pick(open(t, db.config, 5*time.Second, 2))
			g, err := one.Acquire(t.Context(), name, "one", 5*time.Second)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := db.Exec("DO SLEEP(2)"); err != nil { // longer than an idle transaction lives by the server's settings
				t.Fatal(err)
			}
			if err := g.Extend(t.Context(), 5*time.Second); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := other.Acquire(t.Context(), name, "other", 5*time.Second); !errors.Is(err, ErrHeld) {
				t.Fatalf("%s: a second holder: %v", name, err)
			}
			if err := g.Release(t.Context(), 0); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
