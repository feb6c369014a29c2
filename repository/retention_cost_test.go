package repository

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// dueForPrune adds n rows of each kind that are due to be deleted, and so many dispatches with their words and as many rows of each kind
// of history as each says. It returns how many rows Prune is to delete, and how many words go with the dispatches.
func (db *database) dueForPrune(t *testing.T, n, dispatches, each int) (rows, words int) {
	t.Helper()
	now := db.now(t)
	db.aged(t, n, "old", func(kept time.Duration) time.Time { return now.Add(-time.Hour - kept) })
	for range n {
		db.notification(t, "dsp_1", func(r *notificationRow) { r.State, r.NextAt = stateDone, 1 })
	}
	for _, v := range db.drivers(t, dispatches) {
		words += db.findable(t, db.past(t, dispatch.Completed, now.Add(-400*day), v.ID, each))
	}
	return n*(agedRows+1) + dispatches*(3+5*each), words
}

// findable adds the words of a dispatch, and returns how many.
func (db *database) findable(t *testing.T, id dispatch.ID) int {
	t.Helper()
	var row dispatchRow
	must(t, db.writes.Take(&row, "id = ?", id).Error)
	must(t, db.addWords(db.writes, db.dispatchWords(), wordEntries(id, row.words())))
	return len(row.words())
}

// youngWords adds so many words of dispatches that stay, and that share the words of the due ones.
func (db *database) youngWords(t *testing.T, n int) {
	t.Helper()
	var row dispatchRow
	must(t, db.writes.Take(&row).Error)
	words := row.words()
	var entries []wordEntry
	for range n / len(words) {
		entries = append(entries, wordEntries(dispatch.NewID(db.now(t)), words)...)
	}
	must(t, db.addWords(db.writes, db.dispatchWords(), entries))
}

// heldByOthers locks all that is about a dispatch which ended just now, its words and its driver, until the transaction ends.
func (db *database) heldByOthers(t *testing.T) *sql.Tx {
	t.Helper()
	v := db.drivers(t, 1)[0]
	id := db.past(t, dispatch.Completed, db.now(t), v.ID, 3)
	db.findable(t, id)
	tx, err := db.raw.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // locks rows, and no gaps between them
	must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	for lock, arg := range map[string]any{"dispatches WHERE id = ?": id, "drivers WHERE id = ?": v.ID, "dispatch_words WHERE dispatch_id = ?": id} {
		must(t, errorOf(tx.Exec("SELECT 1 FROM "+lock+" FOR UPDATE", arg)))
	}
	for _, table := range historyTables {
		must(t, errorOf(tx.Exec("SELECT 1 FROM "+table+" WHERE dispatch_id = ? FOR UPDATE", id)))
	}
	return tx
}

// sessionWork is how many rows and entries of indexes the session of a pool with one connection has read, and how many rows it has deleted.
func (db *database) sessionWork(t *testing.T, session *sql.DB) (read, deleted int) {
	t.Helper()
	rows, err := session.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Handler_delete'")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		must(t, rows.Scan(&name, &n))
		if name == "Handler_delete" {
			deleted += n
		} else {
			read += n
		}
	}
	must(t, rows.Err())
	return read, deleted
}

// Prune reads what it deletes and little else, by as many statements for many rows of a transaction as for few, and waits for no row that somebody else has
// locked: of a small table, where a server likes to read all, and of a large one.
func TestCostOfPrune(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		db.notOnTiDB(t, "count of the rows that a session has read")
		db = db.by(openWith(t, db.url, Options{Log: quiet, Retention: Retention{Ended: 365 * day, Attempts: 90 * day}})) // patient for a second
		session, err := db.relay.DB()
		must(t, err)
		session.SetMaxOpenConns(1)
		budget, few := 0, 0
		const many = deleteBatchSize / 3 // a transaction deletes three times as many runs of jobs, and the history of two dispatches
		for _, c := range []struct{ due, dispatches, each, young int }{
			{1, 1, 1, 0}, {many, 2, many, 0}, {many, 2, many, testkit.Scale(1000, 3000)},
		} {
			if c.young > 0 {
				db.young(t, c.young)
				db.youngWords(t, c.young)
			}
			held := db.heldByOthers(t)
			rows, words := db.dueForPrune(t, c.due, c.dispatches, c.each)
			first, _ := db.sessionWork(t, session)
			readBefore, deletedBefore := db.sessionWork(t, session)
			all := statements(t, []*gorm.DB{db.relay}, func() { db.mustPrune(t, 100_000, rows) })
			read, deleted := db.sessionWork(t, session)
			must(t, held.Rollback())
			read, deleted = read-readBefore-(readBefore-first), deleted-deletedBefore // what SHOW reads itself is no part of it
			t.Logf("%d due, %d young: %d statements, %d rows deleted, %d read", c.due, c.young, len(all), deleted, read)
			if want := rows + words; deleted != want {
				t.Errorf("%d rows are deleted, want %d", deleted, want)
			}
			if read > 7*deleted+200 {
				t.Errorf("%d rows are read to delete %d", read, deleted)
			}
			if c.young > 0 && read > few+200 {
				t.Errorf("%d rows are read in large tables, and %d in small ones", read, few)
			}
			few = read
			if budget == 0 {
				budget = len(all)
			}
			if len(all) != budget {
				t.Errorf("%d rows take %d statements, want %d as for the first:\n%s", rows, len(all), budget, strings.Join(all, "\n"))
			}
		}
	})
}
