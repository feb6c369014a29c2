package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
)

const (
	// statementSilence is how long the server keeps the session of a silent process that executes statements or holds row locks. It is so much
	// less than lockSessionTimeout that a process that has lost its lock because it stood still can't execute another statement in that session.
	statementSilence = lockSessionTimeout / 2
	// idleSilence is how long it keeps goose's session, which has nothing to do while the statements of a file are executed.
	idleSilence = 7 * 24 * time.Hour
	// statementLockWait bounds how long a statement waits for the lock of a table or row. Meanwhile every later query of the
	// table waits behind it.
	statementLockWait = 3 * time.Second
	// maxLockTries bounds how often a statement is tried that gets no lock: for about a quarter of an hour.
	maxLockTries  = 80
	maxRetryPause = 10 * time.Second // less than statementSilence
	// lastUnjournaled is the last version that releases without a journal applied.
	lastUnjournaled = 6

	createJournal = `CREATE TABLE IF NOT EXISTS migration_progress (
  version    BIGINT      NOT NULL PRIMARY KEY,
  up         BOOLEAN     NOT NULL,
  digest     CHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  statement  INT         NOT NULL,
  definition VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE=InnoDB`
)

// Error numbers of the server.
const (
	noSuchTable   = 1146
	unknownColumn = 1054
	duplicateKey  = 1062
)

var (
	// lockErrors are the errors of a statement that got no lock; of TiDB, that another session changed a definition meanwhile.
	lockErrors = []uint16{1205, 1213, 8028}
	// alreadyDoneErrors are the errors of a statement that was executed before: a table, column, key or constraint exists
	// already, or no longer exists.
	alreadyDoneErrors = []uint16{1050, 1051, unknownColumn, 1060, 1061, 1068, 1072, 1091, noSuchTable, 1176, 1826, 3822}
)

func isError(err error, numbers ...uint16) bool {
	var e *driver.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// journal records the progress of a migration in the table migration_progress.
type journal struct {
	db    *sql.DB
	files map[int64]*file
	// lastUnjournaled is the last version that may have been interrupted without a record.
	lastUnjournaled int64
	silence         time.Duration // statementSilence, but for tests
	// first is whether the journal's table has to be there before a transaction that uses it begins.
	first bool
	log   *slog.Logger
}

// goMigrations returns the files as goose's Go migrations.
func (j *journal) goMigrations() []*goose.Migration {
	var all []*goose.Migration
	for _, f := range j.files {
		to := func(up bool) *goose.GoFunc {
			return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error { return j.run(ctx, tx, f, up) }}
		}
		all = append(all, goose.NewGoMigration(f.version, to(true), to(false)))
	}
	return all
}

// interrupted returns the version that was begun and not completed, 0 if there is none, and its direction.
func (j *journal) interrupted(ctx context.Context) (version int64, up bool, err error) {
	err = j.db.QueryRowContext(ctx, "SELECT version, up FROM migration_progress ORDER BY version DESC LIMIT 1").Scan(&version, &up)
	if errors.Is(err, sql.ErrNoRows) || isError(err, noSuchTable) {
		return 0, false, nil
	}
	return version, up, err
}

// forget deletes the row of a version that is completed in that direction. FirstTap once left such a row behind after it had lost its lock.
func (j *journal) forget(ctx context.Context, version int64, up bool) error {
	_, err := j.db.ExecContext(ctx, "DELETE FROM migration_progress WHERE version = ? AND up = ? AND up = EXISTS (SELECT 1 FROM "+
		goose.DefaultTablename+" WHERE version_id = ? AND is_applied)", version, up, version)
	return err
}

// repairVersionTable adds the first row of goose's table if it is missing. goose writes it after creating the table, in another
// statement, and later expects it.
func (j *journal) repairVersionTable(ctx context.Context) error {
	var rows int
	err := j.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+goose.DefaultTablename).Scan(&rows)
	switch {
	case isError(err, noSuchTable):
		return nil
	case err != nil || rows > 0:
		return err
	}
	_, err = j.db.ExecContext(ctx, "INSERT INTO "+goose.DefaultTablename+" (version_id, is_applied) VALUES (0, TRUE)")
	return err
}

// createFirst creates the journal's table if it has to be there before all transactions.
func (j *journal) createFirst(ctx context.Context) error {
	if !j.first {
		return nil
	}
	_, err := j.db.ExecContext(ctx, createJournal)
	return err
}

// run executes the remaining statements of f in one direction. It deletes the progress row in tx, in which goose also writes the
// version.
func (j *journal) run(ctx context.Context, tx *sql.Tx, f *file, up bool) error {
	if err := allowSilence(ctx, tx, idleSilence); err != nil {
		return err
	}
	conn, err := j.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer closeSession(conn)
	_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d, innodb_lock_wait_timeout = %[1]d, wait_timeout = %d",
		int(statementLockWait.Seconds()), int(j.silence.Seconds())))
	if err != nil {
		return err
	}
	r := &execution{
		conn: conn, file: f, up: up, statements: f.statements(up), journaled: f.version > j.lastUnjournaled,
		log: j.log.With("migration", f.name, "up", up),
	}
	r.digest = digest(r.statements)
	if err := r.resumeOrStart(ctx); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	for r.at <= len(r.statements) {
		if err := r.step(ctx); err != nil {
			return fmt.Errorf("%s, statement %d of %d (%.40s...): %w", f.name, r.at, len(r.statements), r.statements[r.at-1].sql, err)
		}
	}
	if err := allowSilence(ctx, tx, j.silence); err != nil {
		return err
	}
	return mustChange(tx.ExecContext(ctx, "DELETE FROM migration_progress"+here, r.place()...))
}

// allowSilence sets how long the server keeps the session of a process that is silent.
func allowSilence(ctx context.Context, tx *sql.Tx, silence time.Duration) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", int(silence.Seconds())))
	return err
}

// mustChange returns ErrOvertaken if a change of the journal's row found no row.
func mustChange(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrOvertaken
}
