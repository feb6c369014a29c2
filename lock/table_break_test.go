package lock

import (
	"testing"
	"time"

	"firsttap/servertest"
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
			t.Fatalf("nothing was held back: %v", err)
		}
		go func() { extended <- g.Extend(t.Context(), time.Minute) }()
		s.awaitRowLockWait(t)
		looking.Release()
		wantErr(t, "break", <-broken, nil)
		wantErr(t, "extend", <-extended, ErrExpired)
		mustAcquire(t, table, "job", "a rival", time.Minute)
	})
}
