package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
)

const (
	// statementLockWait bounds how long a statement waits for the lock of a table or row. Meanwhile every later query of the
	// table waits behind it.
	statementLockWait = 3 * time.Second
	// maxLockTries bounds how often a statement is tried that gets no lock: for about a quarter of an hour.
	maxLockTries  = 80
	maxRetryPause = 10 * time.Second
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
	conn, err := j.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer closeSession(conn)
	_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d, innodb_lock_wait_timeout = %[1]d", int(statementLockWait.Seconds())))
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
	_, err = tx.ExecContext(ctx, "DELETE FROM migration_progress WHERE version = ?", f.version)
	return err
}

// execution executes one direction of a file. at is the number of the current statement; before is the fingerprint of its
// table's definition before the statement.
type execution struct {
	conn       *sql.Conn
	file       *file
	up         bool
	statements []statement
	digest     string
	journaled  bool // an interrupted process has left a progress row
	at         int
	before     string
	log        *slog.Logger
}

// querier is a connection, or a transaction on it.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// resumeOrStart reads how far an earlier process came, or records that this one begins.
func (r *execution) resumeOrStart(ctx context.Context) error {
	if _, err := r.conn.ExecContext(ctx, createJournal); err != nil {
		return err
	}
	var up bool
	var digest string
	err := r.conn.QueryRowContext(ctx, "SELECT up, digest, statement, definition FROM migration_progress WHERE version = ?", r.file.version).
		Scan(&up, &digest, &r.at, &r.before)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return r.retryOnLock(ctx, func() error { return r.advance(ctx, 1) })
	case err != nil:
		return err
	case up != r.up || digest != r.digest:
		return errors.New("the migration was interrupted with another version of this file; complete it with the FirstTap release that began it")
	}
	r.log.Warn("resuming an interrupted migration", "statement", r.at, "of", len(r.statements))
	return r.waitForOrphan(ctx)
}

// waitForOrphan waits while the server still executes the statement for an earlier process: a server completes a statement also
// after its client is gone.
func (r *execution) waitForOrphan(ctx context.Context) error {
	if r.at > len(r.statements) {
		return nil
	}
	text := strings.TrimRight(r.statements[r.at-1].sql, "; \n") // as the server shows it
	for logged := false; ; logged = true {
		executed, err := r.isExecuted(ctx, text)
		if err != nil || !executed {
			return err
		}
		if !logged {
			r.log.Warn("the server still executes a statement of the interrupted process; waiting for it to end", "statement", r.at)
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// isExecuted reports whether a session executes the statement in this database. It reads SHOW PROCESSLIST: MySQL refuses to read
// information_schema.processlist while any session executes a statement with bytes that are no text.
func (r *execution) isExecuted(ctx context.Context, statement string) (found bool, err error) {
	var database string
	if err := r.conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return false, err
	}
	rows, err := r.conn.QueryContext(ctx, "SHOW FULL PROCESSLIST")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return false, err
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return false, err
		}
		const name, info = 3, 7
		found = found || values[name].String == database && values[info].String == statement
	}
	return found, rows.Err()
}

// record writes that all statements before the given one are done, and the fingerprint of that one's table.
func (r *execution) record(ctx context.Context, q querier, at int) (before string, err error) {
	if at <= len(r.statements) && r.statements[at-1].table != "" {
		if before, err = fingerprint(ctx, q, r.statements[at-1].table); err != nil {
			return "", err
		}
	}
	_, err = q.ExecContext(ctx, `INSERT INTO migration_progress (version, up, digest, statement, definition) VALUES (?, ?, ?, ?, ?)
		ON DUPLICATE KEY UPDATE statement = VALUES(statement), definition = VALUES(definition)`,
		r.file.version, r.up, r.digest, at, before)
	return before, err
}

// advance makes the given statement the next, outside of a transaction.
func (r *execution) advance(ctx context.Context, at int) error {
	before, err := r.record(ctx, r.conn, at)
	if err == nil {
		r.at, r.before = at, before
	}
	return err
}

// step executes one statement and records that it is done.
func (r *execution) step(ctx context.Context) error {
	s := r.statements[r.at-1]
	return r.retryOnLock(ctx, func() error {
		if s.table == "" {
			return r.changeRows(ctx, s)
		}
		if _, err := r.conn.ExecContext(ctx, s.sql); err != nil {
			if there, lookErr := r.alreadyExecuted(ctx, s, err); lookErr != nil || !there {
				return errors.Join(err, lookErr)
			}
			r.log.Info("the statement was done before; going on with the next", "statement", r.at)
		}
		return r.advance(ctx, r.at+1)
	})
}

// changeRows commits the statement's changes together with the record, so that rows are changed once.
func (r *execution) changeRows(ctx context.Context, s statement) error {
	tx, err := r.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a COMMIT it does nothing
	_, err = tx.ExecContext(ctx, s.sql)
	if err != nil && (r.journaled || !isError(err, unknownColumn)) {
		return err
	}
	before, err := r.record(ctx, tx, r.at+1)
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	r.at, r.before = r.at+1, before
	return nil
}

// alreadyExecuted reports whether the statement's error means that it was executed before: the table has changed since the
// statement began. Releases without a journal recorded no table; after those, a CREATE TABLE counts as executed if the table
// is exactly what it makes, and any other statement by its error alone.
func (r *execution) alreadyExecuted(ctx context.Context, s statement, err error) (bool, error) {
	if !isError(err, alreadyDoneErrors...) {
		return false, nil
	}
	now, err := fingerprint(ctx, r.conn, s.table)
	switch {
	case err != nil:
		return false, err
	case now != r.before:
		return true, nil
	case r.journaled:
		return false, nil
	case s.creates:
		return r.tableMatches(ctx, s)
	}
	return true, nil
}

// tableMatches reports whether the table is exactly what the statement would create.
func (r *execution) tableMatches(ctx context.Context, s statement) (same bool, err error) {
	const scratch = "migration_scratch"
	drop := func() error {
		_, err := r.conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+scratch)
		return err
	}
	if err := drop(); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if _, err := r.conn.ExecContext(ctx, strings.Replace(s.sql, s.table, scratch, 1)); err != nil {
		return false, err
	}
	want, err := definition(ctx, r.conn, scratch)
	if err != nil {
		return false, err
	}
	got, err := definition(ctx, r.conn, s.table)
	return got == want, err
}

// retryOnLock repeats try while it gets no lock, with a pause that lets queries run that waited behind it.
func (r *execution) retryOnLock(ctx context.Context, try func() error) error {
	pause := time.Second
	for n := 1; ; n++ {
		err := try()
		if !isError(err, lockErrors...) || n == maxLockTries {
			return err
		}
		table := ""
		if r.at >= 1 && r.at <= len(r.statements) {
			table = r.statements[r.at-1].table
		}
		r.log.Warn("the migration waits for a lock that another session holds; the statement will be retried",
			"statement", r.at, "table", table, "try", n, "of", maxLockTries, "in", pause.String(), "error", err)
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, maxRetryPause)
	}
}

var autoIncrement = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// definition returns a table's definition without its name and its AUTO_INCREMENT, "" if the table does not exist.
func definition(ctx context.Context, q querier, table string) (string, error) {
	var name, text string
	err := q.QueryRowContext(ctx, "SHOW CREATE TABLE "+table).Scan(&name, &text)
	if isError(err, noSuchTable) {
		return "", nil
	}
	return autoIncrement.ReplaceAllString(strings.Replace(text, name, "", 1), ""), err
}

func fingerprint(ctx context.Context, q querier, table string) (string, error) {
	text, err := definition(ctx, q, table)
	if err != nil || text == "" {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:]), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
