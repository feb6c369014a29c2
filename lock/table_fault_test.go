package lock

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"firsttap/internal/servertest"
)

// A renewal that waits for Break's transaction fails, although it was sent before the transaction ended.
func TestTableBreakWhileExtending(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *testDB) {
		proxy := servertest.StartProxy(t, s.config.Addr)
		c := through(s.config, proxy)
		c.InterpolateParams = true
		table, operator := NewTable(s.DB, s.dialect), NewTable(openStore(t, c).DB, s.dialect)
		g := mustAcquire(t, table, "job", "me", time.Minute)
		looking := proxy.Hold("SELECT name, locked_by") // Break reads the row before it frees the name
		broken, extended := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := operator.Break(t.Context(), "job")
			broken <- err
		}()
		select {
		case <-looking.Reached(): // the row is locked
		case err := <-broken:
			t.Fatalf("Break ended without the held statement: %v", err)
		}
		go func() { extended <- g.Extend(t.Context(), time.Minute) }()
		s.awaitRowLockWait(t)
		looking.Release()
		wantErr(t, "break", <-broken, nil)
		wantErr(t, "extend", <-extended, ErrExpired)
		mustAcquire(t, table, "job", "a rival", time.Minute)
	})
}

// While the file has another writer, changes are unavailable.
func TestTableInABusyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	s, other := openSQLite(t, path, "10"), openSQLite(t, path, "10")
	table := NewTable(s.DB, SQLite)
	g := mustAcquire(t, table, "job", "me", time.Minute)
	tx := other.begin(t)
	if _, err := tx.Exec("UPDATE shedlock SET locked_by = locked_by"); err != nil {
		t.Fatal(err)
	}
	mustBeHeld(t, table, "job", "me") // reads still work
	_, err := table.Acquire(t.Context(), "free", "me", time.Minute)
	wantErr(t, "acquire", err, ErrUnavailable)
	wantErr(t, "extend", g.Extend(t.Context(), time.Minute), ErrUnavailable)
	wantErr(t, "release", g.Release(t.Context(), 0), ErrUnavailable)
	_, err = table.Break(t.Context(), "job")
	wantErr(t, "break", err, ErrUnavailable)
	s2 := NewFences(s.DB, SQLite)
	wantErr(t, "raise", s2.Raise(t.Context(), "job", 1), ErrUnavailable)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "release", g.Release(t.Context(), 0), nil)
}

func TestTableEndsWithItsContext(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, s *testDB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g, err := NewTable(s.DB, s.dialect).Acquire(ctx, "job", "me", time.Minute)
		wantErr(t, "acquire", err, ErrUnavailable)
		if g != nil {
			t.Error("a grant, although nothing was sent")
		}
	})
}
