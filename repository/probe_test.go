package repository

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"
)

// started runs a probe until the test ends.
func started(t *testing.T, s *Store) *Probe {
	t.Helper()
	p := s.Probe(t.Context())
	testkit.Run(t, p.Run)
	return p
}

func (p *Probe) becomes(t *testing.T, up bool) {
	t.Helper()
	testkit.Retry(t, func() error {
		if p.Up() != up {
			return errors.New("the probe does not see what became of the database")
		}
		return nil
	})
}

func TestProbe(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		p := started(t, db.Store)
		if !p.Up() {
			t.Error("down, from the start")
		}
		must(t, db.Close())
		p.becomes(t, false)
	})
}

func TestProbeOfAServerThatBecomesReadOnly(t *testing.T) {
	eachOwn(t, func(t *testing.T, db *database) {
		p := started(t, db.Store)
		db.readOnly(t, true)
		p.becomes(t, false)
		if late := db.Probe(t.Context()); late.Up() {
			t.Error("up, on a read-only server")
		}
		db.readOnly(t, false)
		p.becomes(t, true)
	})
}

// All connections for reading are busy: the database takes writes all the same.
func TestProbeWhileAllConnectionsAreBusy(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for _, pool := range db.Pools() {
			for range pool.Stats().MaxOpenConnections {
				c, err := pool.Conn(t.Context())
				must(t, err)
				defer c.Close()
			}
		}
		if !db.Probe(t.Context()).Up() {
			t.Error("down, as others are busy")
		}
	})
}

func TestPingOfSQLite(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	writing, err := db.raw.Conn(t.Context())
	must(t, err)
	defer writing.Close()
	for _, statement := range []string{"BEGIN IMMEDIATE", "ROLLBACK"} { // another process writes, and does not any more
		must(t, errorOf(writing.ExecContext(t.Context(), statement)))
		must(t, db.Ping(t.Context()))
	}
	path := strings.TrimPrefix(db.url, "sqlite://")
	fixed, err := sql.Open("sqlite", sqliteDSN(path, 0)+"&mode=ro")
	must(t, err)
	defer fixed.Close()
	if err := takesWrites(t.Context(), fixed); err == nil {
		t.Error("a file that can't be written to is said to take writes")
	}
}

// A probe that has come to a halt knows nothing.
func TestProbeForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ping atomic.Pointer[func() error]
		become := func(answer func() error) { ping.Store(&answer) }
		halted := make(chan struct{})
		become(func() error { return nil })
		s := &Store{log: quiet, dialect: dialect{ping: func(context.Context) error { return (*ping.Load())() }}}
		p := started(t, s)
		at := func(d time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if p.Up() != want {
				t.Errorf("up is %v", !want)
			}
		}
		at(time.Minute, true)
		become(func() error { return errReadOnly })
		at(probeInterval, false)
		become(func() error { return nil })
		at(probeInterval, true)
		become(func() error { <-halted; return nil }) // for longer than it is given
		at(maxProbeAge-probeInterval, true)
		at(2*probeInterval, false)
		close(halted)
		at(2*probeInterval, true)
	})
}
