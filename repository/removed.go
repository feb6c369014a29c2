package repository

import (
	"context"
	"slices"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// removedTable has the dispatches that were removed, until their history is deleted too. Prune deletes the dispatch's row and writes
// its identifier there in one transaction: readers look for the dispatch first, so from then on all of it is gone for them. The
// history is then deleted in parts. A Prune that ends in between leaves the identifier, with which the next one goes on.
const removedTable = "removed_dispatches"

// noteRemoval is called before the rows of dispatches are deleted. It also removes the words by which they are found. It returns all keys.
func (s *Store) noteRemoval(tx *gorm.DB, keys [][]any) ([][]any, error) {
	ids := slices.Concat(keys...)
	var rows []dispatchRow
	if err := tx.Raw("SELECT id, "+textColumns+" FROM dispatches"+s.dialect.forceIndex("PRIMARY")+" WHERE id IN ?", ids).Scan(&rows).Error; err != nil {
		return nil, err
	}
	var words [][]any
	for i := range rows {
		for _, word := range rows[i].words() {
			words = append(words, []any{word, rows[i].ID})
		}
	}
	if err := s.deleteKeys(tx, "dispatch_words", "word, dispatch_id", words); err != nil {
		return nil, err
	}
	return keys, tx.Exec("INSERT INTO "+removedTable+" (id) VALUES "+placeholders(len(ids), 1), ids...).Error
}

// history are the rules for what is about removed dispatches, without their claims; of is the SQL for which dispatches.
func history(of string, args ...any) []retentionRule {
	rule := func(table, key, index, also string) retentionRule {
		return retentionRule{table: table, key: key, index: index, where: "dispatch_id " + of + also, args: args}
	}
	return []retentionRule{
		rule("notifications", "id", "ix_notifications_dispatch", ""),
		rule("offers", "dispatch_id, round, driver_id", "PRIMARY", ""),
		rule("taps", tapPrimaryKey, "PRIMARY", ""),
		rule("events", "id", "ix_events_dispatch", ""),
		// Those that are pending are still sent. They end when they are as old as keepDeliveries, or with their endpoint.
		rule("webhook_deliveries", deliveryKey, "PRIMARY", " AND status <> 'PENDING'"),
	}
}

// removedAtOnce is how many removed dispatches one statement reads.
const removedAtOnce = 3

// deleteHistory deletes up to limit rows of what is about removed dispatches, and returns how many, also with an error. It leaves what
// others have locked for the next time, and the identifier of its dispatch with it.
func (p pruning) deleteHistory(ctx context.Context, _ retentionRule, limit int) (n int, err error) {
	after := ""
	for n < limit {
		var ids []string
		err := p.relay.WithContext(ctx).Raw("SELECT id FROM "+removedTable+" WHERE id > ? ORDER BY id LIMIT ?", after, min(removedAtOnce, limit)).Scan(&ids).Error
		if err != nil || len(ids) == 0 {
			return n, unavailable(err)
		}
		deleted, err := p.deleteHistoryOf(ctx, ids, limit-n)
		n += deleted
		if err != nil {
			return n, err
		}
		after = ids[len(ids)-1]
	}
	return n, nil
}

func (p pruning) deleteHistoryOf(ctx context.Context, ids []string, limit int) (n int, err error) {
	for _, rule := range history("IN ?", ids) {
		deleted, err := p.deleteExpired(ctx, rule, limit-n)
		n += deleted
		if err != nil || n == limit {
			return n, err
		}
	}
	// A transaction that deletes claims locks their drivers. Another one reads all the history of the dispatches: it must not hold these locks
	// meanwhile. Where a driver is busy, the claims after the first deleteBatchSize are left for the next time.
	for _, remove := range []func(*gorm.DB, []string, int) (int, error){p.deleteClaims, p.forgetRemoved} {
		for most, removed := 0, 0; removed == most; {
			most = min(limit-n, deleteBatchSize)
			removed, err = p.transact(ctx, func(tx *gorm.DB) (int, error) { return remove(tx, ids, most) })
			n += removed
			if err != nil || n == limit {
				return n, err
			}
		}
	}
	return n, nil
}

// forgetRemoved deletes up to limit of the identifiers, of dispatches of which nothing is left. It waits for no lock.
func (s *Store) forgetRemoved(tx *gorm.DB, ids []string, limit int) (int, error) {
	query := "SELECT r.id FROM " + removedTable + " r" + s.dialect.forceIndex("PRIMARY") + " WHERE r.id IN ?"
	for _, rule := range append(history("= r.id"), retentionRule{table: "claims", index: "uq_claims_round", where: "dispatch_id = r.id"}) {
		query += " AND (SELECT 1 FROM " + rule.table + s.dialect.forceIndex(rule.index) + " WHERE " + rule.where + " LIMIT 1) IS NULL"
	}
	gone, err := keysOf(tx.Raw(query+" LIMIT ?", ids, limit))
	if err != nil {
		return 0, err
	}
	return len(gone), s.deleteKeys(tx, removedTable, "id", gone)
}

// deleteClaims deletes up to limit of the removed dispatches' claims. It leaves the claims of drivers whom another transaction has locked.
//
// The number of a driver's next claim follows from the newest one, and keeps two claims at the same time apart. If that one goes, the
// numbers begin again; so the driver's version grows with it: a claim that was decided on before, and has the other number, fails.
func (s *Store) deleteClaims(tx *gorm.DB, ids []string, limit int) (int, error) {
	var claims []claimRow
	err := tx.Raw("SELECT id, driver_id, driver_seq FROM claims"+s.dialect.forceIndex("uq_claims_round")+" WHERE dispatch_id IN ? LIMIT ?"+s.dialect.skipLocked, ids, limit).
		Scan(&claims).Error
	if err != nil || len(claims) == 0 {
		return 0, err
	}
	busy, newest, err := s.lockDriversOf(tx, claims)
	if err != nil {
		return 0, err
	}
	var gone [][]any
	var renumbered []dispatch.DriverID
	for _, c := range claims {
		if slices.Contains(busy, c.DriverID) {
			continue
		}
		gone = append(gone, []any{c.ID})
		if newest[c.DriverID] == c.DriverSeq {
			renumbered = append(renumbered, c.DriverID)
		}
	}
	if len(renumbered) > 0 {
		err := tx.Exec("UPDATE drivers"+s.dialect.forceIndex("PRIMARY")+" SET version = version + 1 WHERE id IN ?", renumbered).Error
		if err != nil {
			return 0, err
		}
	}
	return len(gone), s.deleteKeys(tx, "claims", "id", gone)
}

// lockDriversOf locks the drivers of the claims. It returns the drivers whom another transaction has locked, and the number of each driver's
// newest claim.
func (s *Store) lockDriversOf(tx *gorm.DB, claims []claimRow) (busy []dispatch.DriverID, newest map[dispatch.DriverID]int, err error) {
	ids := make([]dispatch.DriverID, len(claims))
	for i, c := range claims {
		ids[i] = c.DriverID
	}
	of := " FROM drivers d" + s.dialect.forceIndex("PRIMARY") + " WHERE d.id IN ? ORDER BY d.id"
	var locked []dispatch.DriverID
	if err := tx.Raw("SELECT d.id"+of+s.dialect.skipLocked, ids).Scan(&locked).Error; err != nil {
		return nil, nil, err
	}
	var all []struct {
		ID     dispatch.DriverID
		Newest int
	}
	err = tx.Raw("SELECT d.id, COALESCE((SELECT c.driver_seq FROM claims c"+s.dialect.forceIndex("uq_claims_driver_seq")+
		" WHERE c.driver_id = d.id ORDER BY c.driver_seq DESC LIMIT 1), 0) newest"+of, ids).Scan(&all).Error
	newest = map[dispatch.DriverID]int{}
	for _, d := range all {
		newest[d.ID] = d.Newest
		if !slices.Contains(locked, d.ID) {
			busy = append(busy, d.ID)
		}
	}
	return busy, newest, err
}
