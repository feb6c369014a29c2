package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// Errors of the servers.
var (
	doneBefore  = []uint16{1050, 1051, 1060, 1061, 1091} // the table, column or index exists, or there is none to drop
	inTheWay    = []uint16{1205, 1213, 8028}             // a wait for a lock that was too long, a deadlock, a change of the schema on TiDB
	noSuchTable = []uint16{1146}
	anyOfTiDB   = []uint16{1105}
)

const (
	// The name contains a hash of the database's, because the names of locks are global to a server.
	lockName = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"
	// tableWait is how long a statement waits for a table that another session uses. Then all who wait behind it go first.
	tableWait = 3 * time.Second
	tableRest = 2 * time.Second
	mostTries = 80
)

// server applies migrations to a server, in the session that holds the lock.
type server struct {
	session *sql.Conn
	log     *slog.Logger
}

// locked calls fn while no other process migrates, but on SQLite. The lock is MySQL's GET_LOCK, which ends with its session. A server goes
// on with a statement whose client is gone, and keeps the lock until the statement's end.
func (m *Migrator) locked(ctx context.Context, fn func() error) error {
	if m.server == nil {
		return busy(fn())
	}
	session, err := m.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	waits := fmt.Sprintf("SET SESSION lock_wait_timeout = %d, innodb_lock_wait_timeout = %[1]d", int(tableWait.Seconds()))
	if _, err := session.ExecContext(ctx, waits); err != nil {
		return err
	}
	if err := lock(ctx, session); err != nil {
		return err
	}
	m.server.session = session
	err = fn()
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), tableWait)
	defer cancel()
	_, _ = session.ExecContext(brief, "DO RELEASE_LOCK("+lockName+")") // a session that is lost has released it
	return err
}

func lock(ctx context.Context, session *sql.Conn) error {
	for end := time.Now().Add(LockWait); ; {
		var got sql.NullInt64
		err := session.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", max(0, int(time.Until(end).Seconds()))).Scan(&got)
		switch {
		case isError(err, anyOfTiDB) && strings.Contains(err.Error(), "pessimistic lock retry limit") && time.Now().Before(end):
			// Many sessions wait for the lock that one of them gets.
			if err := sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		case err == nil && got.Int64 != 1:
			return ErrBusy
		default:
			return err
		}
	}
}

// records are goose's records of versions. On a server the session that holds the lock writes them: who has lost it records nothing.
type records struct {
	database.StoreExtender
	server *server
}

// Insert implements goose's database.Store.
func (r records) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if r.server != nil {
		db = r.server.session
	}
	return r.StoreExtender.Insert(ctx, db, req)
}

// migrations returns goose's form of the files.
func (s *server) migrations(files map[int64]file) (all []*goose.Migration) {
	for version, f := range files {
		up := func(ctx context.Context, _ *sql.DB) error { return s.execute(ctx, f.name, f.up) }
		down := func(ctx context.Context, _ *sql.DB) error {
			const mark = "UPDATE goose_db_version SET is_applied = FALSE WHERE version_id = %d AND is_applied"
			err := s.execute(ctx, f.name, fmt.Sprintf(mark, version))
			if err == nil {
				err = s.execute(ctx, f.name, f.down)
			}
			return err
		}
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunDB: up}, &goose.GoFunc{RunDB: down}))
	}
	return all
}

var changesRows = regexp.MustCompile(`(?im)^(UPDATE|DELETE)\s`)

// execute executes a statement. It repeats an UPDATE or a DELETE until its WHERE finds no rows, so that a file can change a few at a time
// by a LIMIT. It repeats any that waits too long for what other sessions use.
func (s *server) execute(ctx context.Context, name, statement string) error {
	for tries := 1; ; {
		result, err := s.session.ExecContext(ctx, statement)
		switch {
		case isError(err, doneBefore):
			return nil
		case isError(err, inTheWay) && tries < mostTries:
			s.log.Warn("a migration waits for what another session uses; it tries again",
				"migration", name, "try", tries, "of", mostTries, "in", tableRest, "error", err)
			tries++
			if err := sleep(ctx, tableRest); err != nil {
				return err
			}
		case err != nil || !changesRows.MatchString(statement):
			return err
		default:
			if changed, err := result.RowsAffected(); err != nil || changed == 0 {
				return err
			}
			tries = 1
		}
	}
}

func isError(err error, numbers []uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// busy returns ErrBusy if another process has locked SQLite's file for too long.
func busy(err error) error {
	const locked = 5
	var refused interface{ Code() int } // of SQLite's driver
	if errors.As(err, &refused) && refused.Code()&0xff == locked {
		return ErrBusy
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	rest, end := context.WithTimeout(ctx, d)
	defer end()
	<-rest.Done()
	return ctx.Err()
}
