package repository

import (
	"context"
	"database/sql"
	"strings"

	"gorm.io/gorm"
)

// Statement is a statement that is sent to the database.
type Statement struct {
	// Pool is the pool of its connection: claims, writes, general, backoffice, relay, webhooks, doors, looks or replica.
	Pool string
	// Operation is select, insert, update, delete, call, begin, commit, rollback or other.
	Operation string
	// Query is the SQL with a placeholder for each argument; "" for what ends a transaction.
	Query string
}

// StatementObserver is called before a statement is sent; the function that it returns is called with the statement's error when the
// answer begins. It may add values to the context. It is called concurrently.
type StatementObserver func(ctx context.Context, s Statement) (context.Context, func(err error))

// observe passes every statement by w. No statement may be under way.
func (s *Store) observe(w StatementObserver) {
	for name, db := range s.pools() {
		p := &watchedPool{ConnPool: db.ConnPool, name: name, watch: w}
		db.ConnPool, db.Statement.ConnPool = p, p
	}
	if s.procedure != nil {
		s.procedure.observer = w
	}
	if s.replica != nil {
		s.replica.observer = w
	}
}

// Pools returns the connection pools by name, for their metrics.
func (s *Store) Pools() map[string]*sql.DB {
	found := map[string]*sql.DB{}
	for name, db := range s.pools() {
		if pool, err := db.DB(); err == nil {
			found[name] = pool
		}
	}
	if s.replica != nil {
		found["replica"] = s.replica.pool
	}
	return found
}

// pools returns each pool once: SQLite has one for all writes.
func (s *Store) pools() map[string]*gorm.DB {
	pools := map[string]*gorm.DB{"claims": s.claims, "general": s.general, "backoffice": s.backoffice, "doors": s.doors}
	if s.writes != s.claims {
		pools["writes"], pools["relay"], pools["webhooks"], pools["looks"] = s.writes, s.relay, s.webhooks, s.lookPool
	}
	return pools
}

// watchedPool calls watch for the statements of a pool, or of a transaction on it.
type watchedPool struct {
	gorm.ConnPool
	name  string
	watch StatementObserver
}

// ExecContext implements gorm.ConnPool.
func (p *watchedPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, answered := p.watch(ctx, Statement{p.name, operation(query), query})
	result, err := p.ConnPool.ExecContext(ctx, query, args...)
	answered(err)
	return result, err
}

// QueryContext implements gorm.ConnPool.
func (p *watchedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, answered := p.watch(ctx, Statement{p.name, operation(query), query})
	rows, err := p.ConnPool.QueryContext(ctx, query, args...)
	answered(err)
	return rows, err
}

// QueryRowContext implements gorm.ConnPool.
func (p *watchedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx, answered := p.watch(ctx, Statement{p.name, operation(query), query})
	row := p.ConnPool.QueryRowContext(ctx, query, args...)
	answered(row.Err())
	return row
}

// GetDBConn implements gorm.GetDBConnector.
func (p *watchedPool) GetDBConn() (*sql.DB, error) {
	pool, ok := p.ConnPool.(*sql.DB)
	if !ok {
		return nil, gorm.ErrInvalidDB
	}
	return pool, nil
}

// BeginTx implements gorm.ConnPoolBeginner. The wait for a connection is part of it.
func (p *watchedPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	pool, err := p.GetDBConn()
	if err != nil {
		return nil, err
	}
	_, answered := p.watch(ctx, Statement{Pool: p.name, Operation: "begin"})
	tx, err := pool.BeginTx(ctx, opts)
	answered(err)
	if err != nil {
		return nil, err
	}
	return &watchedTx{watchedPool{tx, p.name, p.watch}, ctx, tx, false}, nil
}

type watchedTx struct {
	watchedPool
	ctx   context.Context // Commit and Rollback get no context
	tx    *sql.Tx
	ended bool
}

// Commit implements gorm.TxCommitter.
func (t *watchedTx) Commit() error { return t.end("commit", t.tx.Commit) }

// Rollback implements gorm.TxCommitter. After a Commit it does nothing, and watch is not called.
func (t *watchedTx) Rollback() error { return t.end("rollback", t.tx.Rollback) }

func (t *watchedTx) end(how string, end func() error) error {
	if t.ended {
		return end()
	}
	t.ended = true
	_, answered := t.watch(t.ctx, Statement{Pool: t.name, Operation: how})
	err := end()
	answered(err)
	return err
}

// operation returns the verb of a statement if it is one of Statement.Operation, otherwise "other".
func operation(query string) string {
	query = strings.TrimLeft(query, " \t\r\n(")
	for _, verb := range [...]string{"select", "insert", "update", "delete"} {
		if len(query) > len(verb) && strings.EqualFold(query[:len(verb)], verb) {
			return verb
		}
	}
	return "other"
}
