package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Table is a Strategy with a row per name, until when it is taken and by whom: ShedLock's table, which it can share
// with ShedLock. It works with any number of connections, through proxies and with Galera.
//
// Winning a free name costs two statements, losing one, extending and releasing one each. The time is the database's.
// The fence is locked_at, in whole milliseconds, of which ShedLock's columns hold no more; rows are never deleted, so it
// does not go back when the clock does. ShedLock must use the database's time as well, and if the columns are
// TIMESTAMP rather than DATETIME, every session the same time zone, one without summer time: best UTC.
//
// A SQLite file has one writer at a time: its busy_timeout should be shorter than the Locker's Timeout.
//
// Safe for concurrent use.
type Table struct {
	db      *sql.DB
	dialect Dialect
	sql     tableSQL
}

// NewTable returns the Table shedlock of db; see [Dialect.Schema].
func NewTable(db *sql.DB, dialect Dialect) *Table {
	t := &Table{db: db, dialect: dialect, sql: mysqlTable}
	if dialect == SQLite {
		t.sql = sqliteTable
	}
	return t
}

// tableSQL is the statements. Durations are in microseconds; insert, take, extend, release and raise are for
// Dialect.number.
type tableSQL struct {
	selectRows    string // the columns of tableRow
	heldCondition string // the condition that a row is taken
	acquireNew    string // name, ttl, owner: takes a name that has no row
	acquireFree   string // ttl, owner, name, owner: takes a name that is free or the owner's
	extend        string // ttl, name, owner
	release       string // keep, name, owner
	raiseFence    string // name: moves the fence
	clearOwner    string // name; also of its owner: to a renewal that waited for this the time seems to be that of its beginning
}

// A hold lasts from now to the microsecond. A release counts from the millisecond: rounded up to one, as MySQL does, the
// name would seem taken a moment longer. lock_until is set also where it stays: where explicit_defaults_for_timestamp is
// OFF, as on MariaDB before 10.10, ShedLock's column is ON UPDATE CURRENT_TIMESTAMP.
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

// Times are text, 'YYYY-MM-DD HH:MM:SS.SSS' in UTC, and compare as such; the clock has no more than milliseconds.
var sqliteTable = tableSQL{
	selectRows: `SELECT name, locked_by, CAST(ROUND((unixepoch(lock_until, 'subsec') - unixepoch('now', 'subsec')) * 1000) AS INTEGER) * 1000,
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

// tableRow is what the table says about a name; the zero value, that it has no row.
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

// tableTries is how often a name that somebody else was quicker to take is looked at: once more, to learn who.
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
			return nil, &HeldError{Owner: row.owner, Left: row.left}
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
	return nil, &HeldError{} // somebody else was quicker twice, and has let go since
}

// micros is d in microseconds, a part of one counted as one.
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

// moveEnd moves the end of a hold that has not ended.
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

// List implements Registry.
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

// Show implements Registry.
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
		h.Owner, h.Left = r.owner, r.left
	}
	return h
}

// Break implements Registry.
func (t *Table) Break(ctx context.Context, name string) (Holder, error) {
	if err := checkName(name); err != nil {
		return Holder{}, err
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing to undo once it is committed
	h, err := t.breakInTx(ctx, tx, name)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return Holder{}, unavailable(ctx, err)
	}
	return h, nil
}

// breakInTx writes first and reads then: the row is locked, and a SQLite transaction that has read can't write when
// somebody else has.
func (t *Table) breakInTx(ctx context.Context, tx *sql.Tx, name string) (Holder, error) {
	fence, err := t.dialect.execNumber(ctx, tx, t.sql.raiseFence, name)
	if fence == 0 && err == nil {
		fence, err = t.dialect.execNumber(ctx, tx, t.sql.acquireNew, name, 0, "")
	}
	if err != nil {
		return Holder{}, err
	}
	if fence == 0 {
		return Holder{}, fmt.Errorf("%q was acquired for the first time in this moment", name)
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
