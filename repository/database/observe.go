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

// textPool expands the words of the statements of a pool, or of a connection or a transaction of it, and tells the observer of each.
type textPool struct {
	gorm.ConnPool
	name     string
	text     *text
	clock    func() string     // the SQL for the time, where the words leave that open
	observer StatementObserver // nil for none
}

// begin expands the words of a query, and tells the observer.
func (p *textPool) begin(ctx context.Context, operation, query string) (_ context.Context, expanded string, answered func(error)) {
	expanded = p.text.of(query, p.clock)
	if p.observer == nil {
		return ctx, expanded, func(error) {}
	}
	if operation == "" {
		operation = verb(query)
	}
	ctx, answered = p.observer(ctx, Statement{p.name, operation, expanded})
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
	in := *p
	in.ConnPool = tx
	return &textTx{in, ctx, tx}, nil
}

type textTx struct {
	textPool
	ctx context.Context // Commit and Rollback get no context
	tx  *sql.Tx
}

// Commit implements gorm.TxCommitter.
func (t *textTx) Commit() error { return t.end("commit", t.tx.Commit) }

// Rollback implements gorm.TxCommitter.
func (t *textTx) Rollback() error { return t.end("rollback", t.tx.Rollback) }

func (t *textTx) end(how string, end func() error) error {
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
