package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

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
	switch begun, err := r.readPlace(ctx); {
	case err != nil:
		return err
	case !begun:
		return r.retryOnLock(ctx, func() error { return r.begin(ctx) })
	}
	r.log.Warn("resuming an interrupted migration", "statement", r.at, "of", len(r.statements))
	for {
		if err := r.waitForOrphan(ctx); err != nil {
			return err
		}
		waitedFor := r.at
		switch begun, err := r.readPlace(ctx); {
		case err != nil:
			return err
		case !begun:
			return ErrOvertaken
		case r.at == waitedFor:
			return nil
		}
		// The earlier process was still there, and went on with the next statement.
	}
}

// readPlace reads at which statement the journal is, and reports whether it has the version.
func (r *execution) readPlace(ctx context.Context) (begun bool, err error) {
	var up bool
	var digest string
	err = r.conn.QueryRowContext(ctx, "SELECT up, digest, statement, definition FROM migration_progress WHERE version = ?", r.file.version).
		Scan(&up, &digest, &r.at, &r.before)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case up != r.up || digest != r.digest:
		return true, errors.New("the migration was interrupted with another version of this file; complete it with the FirstTap release that began it")
	}
	return true, nil
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

// begin records that the first statement is the next. It returns ErrOvertaken if another process has begun or completed the version: a progress
// row of a completed version would be left behind. It locks the journal's row before goose's, as the end of a migration does.
func (r *execution) begin(ctx context.Context) error {
	tx, err := r.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a COMMIT it does nothing
	before, err := r.fingerprint(ctx, tx, 1)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO migration_progress (version, up, digest, statement, definition) VALUES (?, ?, ?, 1, ?)",
		r.file.version, r.up, r.digest, before)
	if isError(err, duplicateKey) {
		return ErrOvertaken
	}
	if err != nil {
		return err
	}
	var applied int
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+goose.DefaultTablename+" WHERE version_id = ? AND is_applied FOR UPDATE", r.file.version).Scan(&applied)
	if err != nil {
		return err
	}
	if r.up == (applied > 0) {
		return ErrOvertaken
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	r.at, r.before = 1, before
	return nil
}

// here selects the journal's row if no other process has moved it. Its arguments are place.
const here = " WHERE version = ? AND up = ? AND digest = ? AND statement = ?"

func (r *execution) place() []any { return []any{r.file.version, r.up, r.digest, r.at} }

// fingerprint returns the fingerprint of the table that the given statement changes, "" if there is none.
func (r *execution) fingerprint(ctx context.Context, q querier, at int) (string, error) {
	if at > len(r.statements) || r.statements[at-1].table == "" {
		return "", nil
	}
	return fingerprint(ctx, q, r.statements[at-1].table)
}

// record writes that the current statement is done, and the fingerprint of the next one's table. It returns ErrOvertaken if the journal is at
// another statement.
func (r *execution) record(ctx context.Context, q querier) (before string, err error) {
	if before, err = r.fingerprint(ctx, q, r.at+1); err != nil {
		return "", err
	}
	return before, mustChange(q.ExecContext(ctx, "UPDATE migration_progress SET statement = ?, definition = ?"+here,
		append([]any{r.at + 1, before}, r.place()...)...))
}

// advance makes the next statement the current one, outside of a transaction.
func (r *execution) advance(ctx context.Context) error {
	before, err := r.record(ctx, r.conn)
	if err == nil {
		r.at, r.before = r.at+1, before
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
		return r.advance(ctx)
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
	before, err := r.record(ctx, tx)
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
