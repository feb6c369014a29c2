package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Table is a Strategy and an Admin that keeps a row per name, with the owner and the time at which its lease ends. It uses
// ShedLock's table and may share it with ShedLock. It works with any connection pool, through proxies and with Galera.
//
// An acquisition costs two statements; a refusal, an extension and a release cost one each. All times are the database's.
// The fence is locked_at in whole milliseconds, the precision of ShedLock's columns. Rows are never deleted, so the fence
// grows even if the clock goes back. ShedLock must use the database's time too. If the columns are TIMESTAMP rather than
// DATETIME, all sessions must use the same time zone without daylight saving time, preferably UTC.
//
// A SQLite file has one writer at a time, so its busy_timeout should be shorter than the Locker's Timeout.
//
// It is safe for concurrent use.
type Table struct {
	db      *sql.DB
	dialect Dialect
	sql     tableSQL
}

// NewTable returns a strategy on db's table shedlock; see [Dialect.Schema].
func NewTable(db *sql.DB, dialect Dialect) *Table {
	t := &Table{db: db, dialect: dialect, sql: mysqlTable}
	if dialect == SQLite {
		t.sql = sqliteTable
	}
	return t
}

// tableSQL are the statements of a dialect, with their arguments. Durations are in microseconds. The statements from
// acquireNew to raiseFence are for Dialect.execNumber.
type tableSQL struct {
	selectRows    string // the columns of tableRow
	heldCondition string // is true for a name that is held
	acquireNew    string // name, ttl, owner: for a name without a row
	acquireFree   string // ttl, owner, name, owner: for a name that is free or the owner's
	extend        string // ttl, name, owner
	release       string // keep, name, owner
	raiseFence    string // name
	// clearOwner: name. It also removes the owner, because a renewal that waited for the row's lock still sees the time at
	// which it began.
	clearOwner string
}

// A lease lasts from the current microsecond, but a release counts from the current millisecond, because MySQL would round
// up to the next one in ShedLock's columns and the name would seem held for longer. Every UPDATE sets lock_until: where
// explicit_defaults_for_timestamp is OFF, as on MariaDB before 10.10, ShedLock's column is ON UPDATE CURRENT_TIMESTAMP.
var mysqlTable = tableSQL{
	selectRows: `SELECT name, locked_by, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until),
	TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at) FROM shedlock`,
	heldCondition: `lock_until > UTC_TIMESTAMP(6)`,
	acquireNew: `INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
	'1970-01-01' + INTERVAL LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3))) MICROSECOND, ?)`,
	acquireFree: `UPDATE shedlock SET lock_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, locked_at = ` + mysqlNextFence + `,
	locked_by = ? WHERE name = ? AND (lock_until <= UTC_TIMESTAMP(6) OR locked_by = ?)`,
	extend: `UPDATE shedlock SET lock_until = '1970-01-01' + INTERVAL
	LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?) MICROSECOND
	WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(6)`,
	release: `UPDATE shedlock SET lock_until = '1970-01-01' + INTERVAL
	LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) + ?) MICROSECOND
	WHERE name = ? AND locked_by = ? AND lock_until > UTC_TIMESTAMP(6)`,
	raiseFence: `UPDATE shedlock SET lock_until = lock_until, locked_at = ` + mysqlNextFence + ` WHERE name = ?`,
	clearOwner: `UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3), locked_by = '' WHERE name = ? AND lock_until > UTC_TIMESTAMP(6)`,
}

const mysqlNextFence = `'1970-01-01' + INTERVAL LAST_INSERT_ID(GREATEST(
	TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)),
	TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at) + 1000)) MICROSECOND`

// Times are text, 'YYYY-MM-DD HH:MM:SS.SSS' in UTC, and compared as text. SQLite's clock has milliseconds.
var sqliteTable = tableSQL{
	selectRows: `SELECT name, locked_by,
	CAST(ROUND((unixepoch(lock_until, 'subsec') - unixepoch('now', 'subsec')) * 1000) AS INTEGER) * 1000,
	` + sqliteFence + ` FROM shedlock`,
	heldCondition: `lock_until > ` + sqliteNow,
	acquireNew: `INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (?, ` + sqliteLater + `, ` + sqliteNow + `, ?)
	ON CONFLICT (name) DO NOTHING RETURNING ` + sqliteFence,
	acquireFree: `UPDATE shedlock SET lock_until = ` + sqliteLater + `, locked_at = ` + sqliteNextTime + `, locked_by = ?
	WHERE name = ? AND (lock_until <= ` + sqliteNow + ` OR locked_by = ?) RETURNING ` + sqliteFence,
	extend:     sqliteExtend,
	release:    sqliteExtend,
	raiseFence: `UPDATE shedlock SET locked_at = ` + sqliteNextTime + ` WHERE name = ? RETURNING ` + sqliteFence,
	clearOwner: `UPDATE shedlock SET lock_until = ` + sqliteNow + `, locked_by = '' WHERE name = ? AND lock_until > ` + sqliteNow,
}

const (
	sqliteNow      = `strftime('%Y-%m-%d %H:%M:%f', 'now')`
	sqliteLater    = `strftime('%Y-%m-%d %H:%M:%f', 'now', printf('%+.3f seconds', ? / 1000000.0))`
	sqliteNextTime = `MAX(` + sqliteNow + `, strftime('%Y-%m-%d %H:%M:%f', locked_at, '+0.001 seconds'))`
	sqliteFence    = `CAST(ROUND(unixepoch(locked_at, 'subsec') * 1000) AS INTEGER) * 1000`
	sqliteExtend   = `UPDATE shedlock SET lock_until = ` + sqliteLater + `
	WHERE name = ? AND locked_by = ? AND lock_until > ` + sqliteNow + ` RETURNING 1`
)

// tableRow is a row of the table. The zero value means that the name has no row.
type tableRow struct {
	name  string
	owner string
	left  time.Duration // not positive if the name is free
	fence int64
}

func (r *tableRow) scan(scan func(...any) error) error {
	var left int64
	err := scan(&r.name, &r.owner, &left, &r.fence)
	r.left = time.Duration(left) * time.Microsecond
	return err
}

func (t *Table) row(ctx context.Context, db querier, name string) (r tableRow, err error) {
	err = r.scan(db.QueryRowContext(ctx, t.sql.selectRows+" WHERE name = ?", name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return tableRow{}, nil
	}
	return r, err
}

// tableTries is how many times a row is read: again if another owner acquired the name in between, to learn its owner.
const tableTries = 2

// Acquire implements Strategy.
func (t *Table) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Grant, error) {
	if err := checkNameAndOwner(name, owner); err != nil {
		return nil, err
	}
	for range tableTries {
		row, err := t.row(ctx, t.db, name)
		if err != nil {
			return nil, unavailable(ctx, err)
		}
		if row.left > 0 && row.owner != owner {
			return nil, &HeldError{Owner: row.owner, Remaining: row.left}
		}
		g := &tableGrant{table: t, name: name, owner: owner}
		if row.name == "" {
			g.fence, err = t.dialect.execNumber(ctx, t.db, t.sql.acquireNew, name, micros(ttl), owner)
		} else {
			g.fence, err = t.dialect.execNumber(ctx, t.db, t.sql.acquireFree, micros(ttl), owner, name, owner)
		}
		if err != nil {
			return g, unavailable(ctx, err)
		}
		if g.fence > 0 {
			return g, nil
		}
	}
	return nil, &HeldError{} // other owners acquired the name between the reads, and released it since
}

// micros returns d in microseconds, rounded up.
func micros(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

type tableGrant struct {
	table *Table
	name  string
	owner string
	fence int64
}

// Fence implements Grant.
func (g *tableGrant) Fence() int64 { return g.fence }

// Extend implements Grant.
func (g *tableGrant) Extend(ctx context.Context, ttl time.Duration) error {
	return g.moveEnd(ctx, g.table.sql.extend, ttl)
}

// Release implements Grant.
func (g *tableGrant) Release(ctx context.Context, keep time.Duration) error {
	return g.moveEnd(ctx, g.table.sql.release, keep)
}

// moveEnd changes the end of a lease that has not ended.
func (g *tableGrant) moveEnd(ctx context.Context, query string, d time.Duration) error {
	moved, err := g.table.dialect.execNumber(ctx, g.table.db, query, micros(d), g.name, g.owner)
	if err != nil {
		return unavailable(ctx, err)
	}
	if moved > 0 {
		return nil
	}
	row, err := g.table.row(ctx, g.table.db, g.name)
	switch {
	case err != nil:
		return unavailable(ctx, err)
	case row.owner != "" && row.owner != g.owner:
		return ErrStolen
	}
	return ErrExpired
}

// List implements Admin.
func (t *Table) List(ctx context.Context) (found []Holder, err error) {
	rows, err := t.db.QueryContext(ctx, t.sql.selectRows+" WHERE "+t.sql.heldCondition+" ORDER BY name")
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		var row tableRow
		if err := row.scan(rows.Scan); err != nil {
			return nil, unavailable(ctx, err)
		}
		found = append(found, row.holder(row.name))
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(ctx, err)
	}
	return found, nil
}

// Show implements Admin.
func (t *Table) Show(ctx context.Context, name string) (Holder, error) {
	row, err := t.row(ctx, t.db, name)
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	return row.holder(name), nil
}

func (r tableRow) holder(name string) Holder {
	h := Holder{Name: name, Fence: r.fence}
	if r.left > 0 {
		h.Owner, h.Remaining = r.owner, r.left
	}
	return h
}

// Break implements Admin.
func (t *Table) Break(ctx context.Context, name string) (Holder, error) {
	if err := checkName(name); err != nil {
		return Holder{}, err
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	h, err := t.breakInTx(ctx, tx, name)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	return h, nil
}

// breakInTx writes before it reads: the write locks the row, and a SQLite transaction that has read can't write after
// another transaction has written.
func (t *Table) breakInTx(ctx context.Context, tx *sql.Tx, name string) (Holder, error) {
	fence, err := t.dialect.execNumber(ctx, tx, t.sql.raiseFence, name)
	if fence == 0 && err == nil {
		fence, err = t.dialect.execNumber(ctx, tx, t.sql.acquireNew, name, 0, "")
	}
	if err != nil {
		return Holder{}, err
	}
	if fence == 0 {
		return Holder{}, fmt.Errorf("%q was acquired for the first time during the call", name)
	}
	row, err := t.row(ctx, tx, name)
	if err != nil {
		return Holder{}, err
	}
	if _, err := tx.ExecContext(ctx, t.sql.clearOwner, name); err != nil {
		return Holder{}, err
	}
	return row.holder(name), nil
}
