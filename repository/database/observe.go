package database

import (
	"context"
	"database/sql"
	"strings"

	"gorm.io/gorm"
)

// Statement is a statement that is sent to the database.
type Statement struct {
	// Pool is the pool of its connection: decide, serve, work, watch or replica.
	Pool string
	// Operation is select, insert, update, delete, call, begin, commit, rollback or other.
	Operation string
	// Query is the SQL with a placeholder for each argument; "" for what ends a transaction.
	Query string
}

// StatementObserver is called before a statement is sent; the function that it returns is called with the statement's error when the
// answer begins. It may add values to the context. It is called concurrently.
type StatementObserver func(ctx context.Context, s Statement) (context.Context, func(err error))

// prepare makes the pools expand the words of each statement, and pass it by the observer. No statement may be under way.
func (d *DB) prepare() {
	for name, pool := range d.pools() {
		p := &textPool{ConnPool: pool.db.ConnPool, name: name, text: &d.text, watch: d.observer}
		pool.db.ConnPool, pool.db.Statement.ConnPool = p, p
	}
}

// Pools returns the connection pools by name, for their metrics.
func (d *DB) Pools() map[string]*sql.DB {
	found := map[string]*sql.DB{}
	for name, p := range d.pools() {
		if pool, err := p.SQL(); err == nil {
			found[name] = pool
		}
	}
	if d.replica != nil {
		found["replica"] = d.replica.pool
	}
	return found
}

// pools returns each pool once: SQLite has one for all writes.
func (d *DB) pools() map[string]*Pool {
	pools := map[string]*Pool{"decide": d.Decide, "serve": d.Serve}
	if d.Work != d.Decide {
		pools["work"], pools["watch"] = d.Work, d.Watch
	}
	return pools
}

// textPool expands the words of the statements of a pool, or of a transaction on it, and calls watch for each.
type textPool struct {
	gorm.ConnPool
	name  string
	text  *text
	watch StatementObserver // nil for none
}

// begin expands the words of a query, and tells the observer.
func (p *textPool) begin(ctx context.Context, operation, query string) (_ context.Context, expanded string, answered func(error)) {
	expanded, answered = p.text.of(query), func(error) {}
	if p.watch == nil {
		return ctx, expanded, answered
	}
	if operation == "" {
		operation = verb(query)
	}
	ctx, answered = p.watch(ctx, Statement{p.name, operation, expanded})
	return ctx, expanded, answered
}

// ExecContext implements gorm.ConnPool.
func (p *textPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, query, answered := p.begin(ctx, "", query)
	result, err := p.ConnPool.ExecContext(ctx, query, args...)
	answered(err)
	return result, err
}

// QueryContext implements gorm.ConnPool.
func (p *textPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, query, answered := p.begin(ctx, "", query)
	rows, err := p.ConnPool.QueryContext(ctx, query, args...)
	answered(err)
	return rows, err
}

// QueryRowContext implements gorm.ConnPool.
func (p *textPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, query, answered := p.begin(ctx, "", query)
	row := p.ConnPool.QueryRowContext(ctx, query, args...)
	answered(row.Err())
	return row
}

// GetDBConn implements gorm.GetDBConnector.
func (p *textPool) GetDBConn() (*sql.DB, error) {
	pool, ok := p.ConnPool.(*sql.DB)
	if !ok {
		return nil, gorm.ErrInvalidDB
	}
	return pool, nil
}

// BeginTx implements gorm.ConnPoolBeginner. The wait for a connection is part of it.
func (p *textPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	pool, err := p.GetDBConn()
	if err != nil {
		return nil, err
	}
	_, _, answered := p.begin(ctx, "begin", "")
	tx, err := pool.BeginTx(ctx, opts)
	answered(err)
	if err != nil {
		return nil, err
	}
	return &textTx{textPool{tx, p.name, p.text, p.watch}, ctx, tx, false}, nil
}

type textTx struct {
	textPool
	ctx   context.Context // Commit and Rollback get no context
	tx    *sql.Tx
	ended bool
}

// Commit implements gorm.TxCommitter.
func (t *textTx) Commit() error { return t.end("commit", t.tx.Commit) }

// Rollback implements gorm.TxCommitter. After a Commit it does nothing, and watch is not called.
func (t *textTx) Rollback() error { return t.end("rollback", t.tx.Rollback) }

func (t *textTx) end(how string, end func() error) error {
	if t.ended {
		return end()
	}
	t.ended = true
	_, _, answered := t.begin(t.ctx, how, "")
	err := end()
	answered(err)
	return err
}

// verb returns the verb of a statement if it is one of Statement.Operation, otherwise "other".
func verb(query string) string {
	query = strings.TrimLeft(query, " \t\r\n(")
	for _, verb := range [...]string{"select", "insert", "update", "delete"} {
		if len(query) > len(verb) && strings.EqualFold(query[:len(verb)], verb) {
			return verb
		}
	}
	return "other"
}

// Expanded returns a statement as the database gets it from tx.
func Expanded(tx Tx, statement string) string {
	if in, ok := tx.Statement.ConnPool.(*textTx); ok {
		return in.text.of(statement)
	}
	return tx.Statement.ConnPool.(*textPool).text.of(statement)
}
