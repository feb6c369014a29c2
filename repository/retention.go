package repository

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// Retention is how long history is kept; 0 is for ever.
type Retention struct {
	// Ended is for dispatches that are over, from their last change, with all that is about them.
	Ended time.Duration
	// Attempts is for taps, and for which offers drivers have seen and declined.
	Attempts time.Duration
	Audit    time.Duration
}

// How long other rows are kept. A notification expires by its next_at, the answer to an Idempotency-Key by its expires_at. Drivers
// are kept until they are erased.
const (
	keepQuarantined = 7 * 24 * time.Hour // an app in use registers its token again when it starts
	keepRuns        = 7 * 24 * time.Hour
	keepSupply      = 30 * 24 * time.Hour
	keepSent        = 90 * 24 * time.Hour // sent notifications of an offer without an end
)

// Prune deletes up to limit expired rows and returns how many; rows that it keeps for longer (see keepOffers) count too. Each rule gets an
// equal share of limit; the part that a rule does not use goes to the others. Prune locks few rows at a time and waits for no lock. It calls
// rest after each transaction, and ends with its error.
func (s *Store) Prune(ctx context.Context, limit int, rest func(context.Context) error) (n int, err error) {
	now, err := s.clock(s.relay.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	p := pruning{s, rest}
	left := s.rulesWithRows(ctx, s.retentionRules(now))
	for n < limit && len(left) > 0 {
		var more []retentionRule
		for i, rule := range left {
			others := len(left) - i - 1
			share := (limit - n + others) / (others + 1)
			deleteRows := p.deleteExpired
			switch rule.table {
			case removedTable:
				deleteRows = p.deleteHistory
			case webhooksTable:
				deleteRows = p.deleteDeliveries
			}
			deleted, err := deleteRows(ctx, rule, share)
			n += deleted
			if err != nil {
				return n, err
			}
			if deleted == share {
				more = append(more, rule)
			}
		}
		left = more
	}
	if n < limit { // what was removed just now
		deleted, err := p.deleteHistory(ctx, retentionRule{}, limit-n)
		return n + deleted, err
	}
	return n, nil
}

// pruning is a call of Prune.
type pruning struct {
	*Store
	rest func(context.Context) error
}

// transact runs fn in a transaction, which returns how many rows it has deleted, and rests.
func (p pruning) transact(ctx context.Context, fn func(tx *gorm.DB) (int, error)) (n int, err error) {
	err = p.transactWithRetry(ctx, p.relay, func(tx *gorm.DB) (err error) {
		n, err = fn(tx)
		return unavailable(err)
	})
	if err != nil {
		return 0, err
	}
	return n, p.rest(ctx)
}

// rulesWithRows returns the rules by which rows are to be deleted, in one statement, and all rules if that fails.
func (s *Store) rulesWithRows(ctx context.Context, rules []retentionRule) (some []retentionRule) {
	exists := make([]string, len(rules))
	found, into := make([]bool, len(rules)), make([]any, len(rules))
	var args []any
	for i, r := range rules {
		// With EXISTS, a server may read the rows in another order.
		exists[i] = "(SELECT 1 FROM " + r.table + " WHERE " + r.where + " ORDER BY " + r.order + " LIMIT 1) IS NOT NULL"
		args, into[i] = append(args, r.args...), &found[i]
	}
	if err := s.relay.WithContext(ctx).Raw("SELECT "+strings.Join(exists, ", "), args...).Row().Scan(into...); err != nil {
		return rules // the statement of one of them will fail with the error
	}
	for i, r := range rules {
		if found[i] {
			some = append(some, r)
		}
	}
	return some
}

// retentionRule selects the rows of a table to delete, by an index; in any order if order is "". index names the index if the server might
// choose another one, and key the columns of the primary key.
type retentionRule struct {
	table, key, where, order, index string
	args                            []any
	// before is called with the keys of rows before they are deleted, in the same transaction, and returns those to delete; nil for nothing.
	before func(tx *gorm.DB, keys [][]any) (expired [][]any, err error)
	// batch bounds one transaction, 0 for deleteBatchSize.
	batch int
}

// retentionRules returns the rules at the time now.
func (s *Store) retentionRules(now time.Time) []retentionRule {
	ago := func(kept time.Duration) int64 { return micros(now.Add(-kept)) }
	rule := func(table, key, where, order string, args ...any) retentionRule {
		return retentionRule{table: table, key: key, where: where, order: order, args: args}
	}
	quarantined := rule("devices", "id", "quarantined_at < ?", "quarantined_at", ago(keepQuarantined))
	quarantined.before = func(tx *gorm.DB, keys [][]any) ([][]any, error) {
		topics, err := topicNames(tx)
		if err != nil {
			return nil, err
		}
		return keys, forgetMembers(tx, topics, slices.Concat(keys...))
	}
	all := []retentionRule{
		quarantined,
		rule("job_runs", "job, slot", "slot < ? AND status NOT IN ?", "slot", ago(keepRuns), unfinished),
		rule("supply", "at, region", "at < ?", "at", ago(keepSupply)),
		rule("idempotency_keys", "caller, name", "expires_at <= ?", "expires_at", micros(now)),
		// The walk of an event that no relay has expanded. It would begin again.
		rule("expansions", "event_id", "event_id < ?", "event_id", dispatch.MinEventID(now.Add(-keepSent))),
		rule("events", "id", "dispatch_id = '' AND at < ?", "dispatch_id", ago(keepDone)), // see Store.settle
		rule(removedTable, "id", "id > ''", "id"),
		rule(webhooksTable, "id", "id > ''", "id"),
	}
	// One rule for each state: a condition "state <> 0" would not use the index.
	for _, state := range []int{stateDone, stateDead, stateDropped} {
		over := rule("notifications", "id", "state = ? AND next_at <= ?", "next_at", state, micros(now))
		if state == stateDone {
			over.before = func(tx *gorm.DB, keys [][]any) ([][]any, error) { return s.keepOffers(tx, keys, now) }
		}
		all = append(all, over)
	}
	// Audit entries are found by their identifiers, which begin with the time. Taps and offers are found by their dispatch's and then
	// checked, as an old offer may have been tapped, seen or declined recently.
	if kept := s.options.Retention.Attempts; kept > 0 {
		tapped := now.Add(-kept)
		all = append(all,
			rule("taps", tapPrimaryKey, "dispatch_id < ? AND last_at < ?", "dispatch_id", dispatch.MinID(tapped), micros(tapped)),
			rule("offers", "dispatch_id, round, driver_id", "dispatch_id < ? AND COALESCE(seen_at, 0) < ? AND COALESCE(declined_at, 0) < ?",
				"dispatch_id", dispatch.MinID(tapped), micros(tapped), micros(tapped)))
	}
	if kept := s.options.Retention.Audit; kept > 0 {
		all = append(all, rule("audit", "id", "id < ?", "id", dispatch.MinAuditID(now.Add(-kept))))
	}
	if kept := s.options.Retention.Ended; kept > 0 {
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			ended := rule("dispatches", "id", "status = ? AND updated_at < ?", "updated_at", status, ago(kept))
			ended.before, ended.batch = s.noteRemoval, removeBatchSize
			all = append(all, ended)
		}
	}
	return all
}

const (
	// deleteBatchSize bounds one transaction: a claim may wait for it, on SQLite for its locks, and elsewhere for the processor.
	deleteBatchSize = 20
	// removeBatchSize is deleteBatchSize for dispatches: each goes with its words, of which it has about ten, and 64 at most.
	removeBatchSize = 3
)

// deleteExpired deletes up to limit rows of a rule, and returns how many, with those that it keeps for longer, also with an error.
func (p pruning) deleteExpired(ctx context.Context, rule retentionRule, limit int) (n int, err error) {
	for n < limit {
		chunk := min(limit-n, cmp.Or(rule.batch, deleteBatchSize))
		found, err := p.transact(ctx, func(tx *gorm.DB) (int, error) { return p.deleteBatch(tx, rule, chunk) })
		n += found
		if err != nil || found < chunk {
			return n, err
		}
	}
	return n, nil
}

func (s *Store) deleteBatch(tx *gorm.DB, rule retentionRule, limit int) (found int, err error) {
	query := "SELECT " + rule.key + " FROM " + rule.table
	if rule.index != "" {
		query += s.dialect.forceIndex(rule.index)
	}
	query += " WHERE " + rule.where
	if rule.order != "" {
		query += " ORDER BY " + rule.order
	}
	query += " LIMIT ?" + s.dialect.skipLocked
	args := append(append([]any{}, rule.args...), limit)
	if rule.before == nil {
		done := tx.Exec(s.deleteFound(rule.table, rule.key, query), args...)
		return int(done.RowsAffected), done.Error
	}
	keys, err := keysOf(tx.Raw(query, args...))
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	found = len(keys)
	expired, err := rule.before(tx, keys)
	if err != nil {
		return 0, err
	}
	return found, s.deleteKeys(tx, rule.table, rule.key, expired)
}

// keepOffers postpones the deletion of sent offers whose dispatch was extended after they were sent, because their drivers must still hear
// of its end. It returns the keys of the other notifications.
func (s *Store) keepOffers(tx *gorm.DB, keys [][]any, now time.Time) ([][]any, error) {
	var offers []struct {
		ID        string
		CreatedAt int64
		EndsAt    int64 // 0 without a dispatch in that round
	}
	err := tx.Raw(`SELECT n.id, n.created_at, COALESCE((SELECT d.expires_at FROM dispatches d`+s.dialect.forceIndex("PRIMARY")+` WHERE d.id = n.dispatch_id AND d.round = n.round), 0) ends_at
		FROM notifications n`+s.dialect.forceIndex("PRIMARY")+` WHERE n.id IN ? AND n.type IN `+offerTypes+` AND n.created_at > ?`,
		slices.Concat(keys...), micros(now.Add(-keepSent))).Scan(&offers).Error
	if err != nil {
		return nil, err
	}
	kept, byEnd := map[string]bool{}, map[int64][]string{}
	for _, n := range offers {
		if n.EndsAt > micros(now.Add(-keepDone)) {
			end := min(n.EndsAt, n.CreatedAt+keepSent.Microseconds())
			kept[n.ID], byEnd[end] = true, append(byEnd[end], n.ID)
		}
	}
	for end, ids := range byEnd {
		err := tx.Exec("UPDATE notifications"+s.dialect.forceIndex("PRIMARY")+" SET next_at = ? WHERE id IN ?", end+keepDone.Microseconds(), ids).Error
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(keys, func(key []any) bool { return kept[*key[0].(*string)] }), nil
}

// deleteFound is the SQL that deletes the rows of a table whose primary keys the query finds. The query has a LIMIT. So a server
// first reads the query's result, and then looks up each row by its key. For a DELETE with a list of keys it may read the whole of a small
// table instead, whatever index it is told to use, and wait for every locked row.
func (s *Store) deleteFound(table, key, query string) string {
	if s.dialect.skipLocked == "" {
		return "DELETE FROM " + table + " WHERE (" + key + ") IN (" + query + ")"
	}
	same := strings.Split(key, ", ")
	for i, column := range same {
		same[i] = "x." + column + " = k." + column
	}
	return "DELETE x FROM (" + query + ") k STRAIGHT_JOIN " + table + " x ON " + strings.Join(same, " AND ")
}

// deleteKeys deletes the rows with these primary keys, but for those that somebody else has locked.
func (s *Store) deleteKeys(tx *gorm.DB, table, key string, keys [][]any) error {
	if len(keys) == 0 {
		return nil
	}
	columns := strings.Split(key, ", ")
	query := "VALUES " + placeholders(len(keys), len(columns))
	if s.dialect.skipLocked != "" { // of an IN with several columns MariaDB does not look up the rows
		one := " OR " + strings.Join(columns, " = ? AND ") + " = ?"
		query = "SELECT " + key + " FROM " + table + s.dialect.forceIndex("PRIMARY") + " WHERE " + strings.TrimPrefix(strings.Repeat(one, len(keys)), " OR ") +
			" LIMIT " + strconv.Itoa(len(keys)) + s.dialect.skipLocked
	}
	return tx.Exec(s.deleteFound(table, key, query), slices.Concat(keys...)...).Error
}

// keysOf returns the keys that the query finds.
func keysOf(query *gorm.DB) (keys [][]any, err error) {
	rows, err := query.Rows()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		key, into := make([]string, len(columns)), make([]any, len(columns))
		for i := range key {
			into[i] = &key[i]
		}
		err = rows.Scan(into...)
		keys = append(keys, into)
	}
	return keys, errors.Join(err, rows.Err())
}
