package repository

import (
	"context"
	"errors"
	"strings"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// How long rows are kept. Dispatches, their claims and events, and the audit are kept forever. A notification expires by its next_at,
// the answer to an Idempotency-Key by its expires_at.
const (
	keepQuarantined = 7 * 24 * time.Hour // an app in use registers its token again when it starts
	keepRuns        = 7 * 24 * time.Hour
	keepSupply      = 30 * 24 * time.Hour
	keepTaps        = 90 * 24 * time.Hour // and which offers drivers have seen and declined
	keepSent        = keepTaps            // sent notifications of an offer without an end
)

// Prune deletes up to limit expired rows, and returns how many. Each rule gets an equal share of limit; the part that a rule does
// not use goes to the others. Prune locks few rows at a time and waits for no lock.
func (s *Store) Prune(ctx context.Context, limit int) (n int, err error) {
	now, err := s.clock(s.relay.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	left := s.rulesWithRows(ctx, retentionRules(now))
	for n < limit && len(left) > 0 {
		var more []retentionRule
		for i, rule := range left {
			others := len(left) - i - 1
			share := (limit - n + others) / (others + 1)
			deleted, err := s.deleteExpired(ctx, rule, share)
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
	return n, nil
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

// retentionRule selects the rows of a table to delete, by an index.
type retentionRule struct {
	table, key, where, order string
	args                     []any
}

// retentionRules returns the rules at the time now. Attempts are found by their identifiers, which begin with the time. Offers
// are found by their dispatch's and then checked, as an old offer may have been seen or declined recently.
func retentionRules(now time.Time) []retentionRule {
	ago := func(kept time.Duration) int64 { return micros(now.Add(-kept)) }
	tapped := now.Add(-keepTaps)
	all := []retentionRule{
		// Only earlier versions write rows of the outbox.
		{"outbox", "event_id", "state = 1 AND next_at <= ?", "next_at", []any{micros(now)}},
		{"devices", "id", "quarantined_at < ?", "quarantined_at", []any{ago(keepQuarantined)}},
		{"job_runs", "job, slot", "slot < ? AND status NOT IN ?", "slot", []any{ago(keepRuns), unfinished}},
		{"supply", "at, region", "at < ?", "at", []any{ago(keepSupply)}},
		{"idempotency_keys", "caller, name", "expires_at <= ?", "expires_at", []any{micros(now)}},
		{"tap_batches", "id", "id < ?", "id", []any{dispatch.MinAttemptID(tapped)}},
		{"attempts", "id", "id < ?", "id", []any{dispatch.MinAttemptID(tapped)}},
		{
			"offers", "dispatch_id, round, driver_id", "dispatch_id < ? AND COALESCE(seen_at, 0) < ? AND COALESCE(declined_at, 0) < ?",
			"dispatch_id", []any{dispatch.MinID(tapped), micros(tapped), micros(tapped)},
		},
		{"events", "id", "dispatch_id = '' AND at < ?", "dispatch_id", []any{ago(keepDone)}}, // see Store.resolve
	}
	// One rule for each state: a condition "state <> 0" would not use the index.
	for _, state := range []int{stateDone, stateDead, stateDropped} {
		all = append(all, retentionRule{"notifications", "id", "state = ? AND next_at <= ?", "next_at", []any{state, micros(now)}})
	}
	// An earlier version kept the notifications of an offer without an end for as long as the offer.
	all = append(all, retentionRule{
		"notifications", "id", "state = ? AND next_at > ? AND created_at < ?", "next_at",
		[]any{stateDone, micros(now.Add(keepSent + 2*keepDone)), micros(tapped)},
	})
	return all
}

// deleteBatchSize bounds one transaction: on SQLite it makes all other writers wait.
const deleteBatchSize = 500

// deleteExpired deletes up to limit rows of a rule, and returns how many, also with an error.
func (s *Store) deleteExpired(ctx context.Context, rule retentionRule, limit int) (n int, err error) {
	for n < limit {
		chunk := min(limit-n, deleteBatchSize)
		deleted := 0
		err := s.transactWithRetry(ctx, s.relay, func(tx *gorm.DB) (err error) {
			deleted, err = s.deleteBatch(tx, rule, chunk)
			return unavailable(err)
		})
		if err != nil {
			return n, err
		}
		n += deleted
		if deleted < chunk {
			return n, nil
		}
	}
	return n, nil
}

func (s *Store) deleteBatch(tx *gorm.DB, rule retentionRule, limit int) (int, error) {
	found := " FROM " + rule.table + " WHERE " + rule.where + " ORDER BY " + rule.order + " LIMIT ?"
	args := append(append([]any{}, rule.args...), limit)
	if s.dialect.skipLocked == "" {
		done := tx.Exec("DELETE FROM "+rule.table+" WHERE ("+rule.key+") IN (SELECT "+rule.key+found+")", args...)
		return int(done.RowsAffected), done.Error
	}
	keys, err := lockedKeys(tx.Raw("SELECT "+rule.key+found+s.dialect.skipLocked, args...))
	// One statement for each key: for several keys of a small table, or keys of two columns, a server may read the whole
	// table and wait for every locked row.
	one := "DELETE FROM " + rule.table + " WHERE " + strings.ReplaceAll(rule.key, ", ", " = ? AND ") + " = ?"
	for i, key := range keys {
		if err := tx.Exec(one, key...).Error; err != nil {
			return i, err
		}
	}
	return len(keys), err
}

// lockedKeys returns the keys that the query finds and locks.
func lockedKeys(query *gorm.DB) (keys [][]any, err error) {
	rows, err := query.Rows()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		key := make([]any, len(columns))
		for i := range key {
			key[i] = new(string)
		}
		err = rows.Scan(key...)
		keys = append(keys, key)
	}
	return keys, errors.Join(err, rows.Err())
}
