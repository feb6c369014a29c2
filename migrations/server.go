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

// SessionLock implements goose's lock.SessionLocker by MySQL's GET_LOCK, which ends with the session. A server goes on with a statement
// whose client is gone, and keeps its lock until the statement's end.
func (s *server) SessionLock(ctx context.Context, session *sql.Conn) error {
	waits := fmt.Sprintf("SET SESSION lock_wait_timeout = %d, innodb_lock_wait_timeout = %[1]d", int(tableWait.Seconds()))
	if _, err := session.ExecContext(ctx, waits); err != nil {
		return err
	}
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
			s.session = session
			return err
		}
	}
}

// SessionUnlock implements goose's lock.SessionLocker.
func (s *server) SessionUnlock(ctx context.Context, session *sql.Conn) error {
	s.session = nil
	ctx, cancel := context.WithTimeout(ctx, tableWait)
	defer cancel()
	_, err := session.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")")
	return err
}

// migrations returns goose's form of the files.
func (s *server) migrations(files map[int64]file) (all []*goose.Migration) {
	for version, f := range files {
		up := func(ctx context.Context, _ *sql.DB) error { return s.execute(ctx, f.name, f.up) }
		down := func(ctx context.Context, _ *sql.DB) error {
			err := s.execute(ctx, f.name, fmt.Sprintf("UPDATE goose_db_version SET is_applied = FALSE WHERE version_id = %d AND is_applied", version))
			if err == nil {
				err = s.execute(ctx, f.name, f.down)
			}
			return err
		}
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunDB: up}, &goose.GoFunc{RunDB: down}))
	}
	return all
}

var changesRows = regexp.MustCompile(`(?im)^(INSERT|REPLACE|UPDATE|DELETE)\s`)

// execute executes a statement. It repeats one that changes rows until there are none left that its WHERE finds, so that a file can change a
// few at a time by a LIMIT. It repeats any that waits too long for what other sessions use.
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
		}
	}
}

func isError(err error, numbers []uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

func sleep(ctx context.Context, d time.Duration) error {
	rest, end := context.WithTimeout(ctx, d)
	defer end()
	<-rest.Done()
	return ctx.Err()
}
