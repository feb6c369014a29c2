package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/lock/locktest"
)

func TestTableOfTiDBConforms(t *testing.T) {
	testkit.OnlyOnTiDB(t)
	conforms(t, tableRig(servertest.TiDB), locktest.Contract)
}

// On TiDB two sessions would hold the same row, and no statement tells which session holds a named lock.
func TestSessionsRefuseTiDB(t *testing.T) {
	testkit.OnlyOnTiDB(t)
	url := servertest.EmptyURL(t, servertest.TiDB)
	create(t, openMySQL(t, url), lock.MySQL)
	for name, pick := range map[string]func(*lock.Sessions) lock.Strategy{"named": named, "rows": rows} {
		s, err := lock.OpenPatientSessions(config(t, url), time.Minute, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pick(s).Acquire(t.Context(), "job", "me", time.Second)
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "TiDB") {
			t.Errorf("%s: got %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
