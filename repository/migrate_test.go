package repository

import (
	"sync/atomic"
	"testing"
	"time"

	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

// Ten instances start at once on an empty database.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		u := servertest.EmptyURL(t, kind)
		stores := make([]*Store, 10)
		for i := range stores {
			stores[i] = open(t, u)
		}
		var steps atomic.Int32
		testkit.Together(len(stores), func(i int) {
			err := stores[i].Migrate(func(m *migrations.Migrator) error {
				n, err := m.Up(t.Context())
				steps.Add(int32(n))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
		const want = 9 // each once
		if steps.Load() != want {
			t.Errorf("%d steps were taken, want %d", steps.Load(), want)
		}
		db := &database{Store: stores[0], url: u, raw: direct(t, u)}
		db.mustAccept(t, db.add(t, nil).ID, db.drivers(t, 1)[0].ID)
	})
}

// A process that starts while another one migrates waits for it, longer than any other call may take.
func TestMigrateWaitsForTheOther(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Databases(), func(t *testing.T, kind string) {
		if kind != servertest.SQLite {
			testkit.OnlyInAll(t) // it takes longer than ioTimeout
		}
		u, lock, free, wait := servertest.EmptyURL(t, kind), "DO GET_LOCK("+migrateLock+", 0)", "DO RELEASE_ALL_LOCKS()", ioTimeout+time.Second
		s := open(t, u)
		if kind == servertest.SQLite {
			u += ".migrate"
			lock, free, wait = "BEGIN EXCLUSIVE", "ROLLBACK", 3*time.Second
		}
		other, err := direct(t, u).Conn(t.Context())
		must(t, err)
		defer other.Close()
		_, err = other.ExecContext(t.Context(), lock)
		must(t, err)
		ended := make(chan error, 1)
		go func() {
			ended <- s.up(t.Context())
		}()
		select {
		case err := <-ended:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(wait):
		}
		_, err = other.ExecContext(t.Context(), free)
		must(t, err)
		must(t, <-ended)
	})
}

// migrateLock is the name that the migrations take, in SQL.
const migrateLock = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"
