package repository

import (
	"context"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// removedTable has the dispatches that were removed, until their history is deleted too. Prune deletes the dispatch's row and writes
// its identifier there in one transaction: readers look for the dispatch first, so from then on all of it is gone for them. The
// history is then deleted in parts. A Prune that ends in between leaves the identifier, with which the next one goes on.
const removedTable = "removed_dispatches"

// noteRemoval is called before the row of a dispatch is deleted. It also removes the words by which the dispatch is found.
func (s *Store) noteRemoval(tx *gorm.DB, id string) error {
	var row dispatchRow
	if err := tx.Raw("SELECT "+textColumns+" FROM dispatches WHERE id = ?", id).Scan(&row).Error; err != nil {
		return err
	}
	if err := s.removeWords(tx, dispatch.ID(id), row.words()); err != nil {
		return err
	}
	return tx.Exec("INSERT INTO "+removedTable+" (id) VALUES (?)", id).Error
}

// history are the rules for what is about a removed dispatch, without its claims.
func history(id string) []retentionRule {
	var all []retentionRule
	for _, of := range []struct{ table, key string }{
		{"notifications", "id"}, {"offers", "dispatch_id, round, driver_id"}, {"tap_batches", "id"}, {"attempts", "id"}, {"events", "id"},
	} {
		all = append(all, retentionRule{table: of.table, key: of.key, where: "dispatch_id = ?", args: []any{id}})
	}
	// Those that are pending are still sent. They end by themselves, or with their endpoint.
	return append(all, retentionRule{table: "webhook_deliveries", key: deliveryKey, where: "dispatch_id = ? AND status <> 'PENDING'", args: []any{id}})
}

// removedAtOnce is how many removed dispatches one statement reads.
const removedAtOnce = 100

// deleteHistory deletes up to limit rows of what is about removed dispatches, and returns how many, also with an error. It leaves what
// others have locked for the next time, and the identifier of its dispatch with it.
func (s *Store) deleteHistory(ctx context.Context, _ retentionRule, limit int) (n int, err error) {
	after := ""
	for n < limit {
		var ids []string
		err := s.relay.WithContext(ctx).Raw("SELECT id FROM "+removedTable+" WHERE id > ? ORDER BY id LIMIT ?", after, min(removedAtOnce, limit)).Scan(&ids).Error
		if err != nil || len(ids) == 0 {
			return n, unavailable(err)
		}
		for _, id := range ids {
			deleted, err := s.deleteHistoryOf(ctx, id, limit-n)
			n += deleted
			if err != nil || n == limit {
				return n, err
			}
		}
		after = ids[len(ids)-1]
	}
	return n, nil
}

func (s *Store) deleteHistoryOf(ctx context.Context, id string, limit int) (n int, err error) {
	for _, rule := range history(id) {
		deleted, err := s.deleteExpired(ctx, rule, limit-n)
		n += deleted
		if err != nil || n == limit {
			return n, err
		}
	}
	deleted := 0
	err = s.transactWithRetry(ctx, s.relay, func(tx *gorm.DB) (err error) {
		if deleted, err = s.deleteClaims(tx, id, limit-n); err != nil || n+deleted == limit {
			return unavailable(err)
		}
		if left, err := historyLeft(tx, id); err != nil || left {
			return unavailable(err)
		}
		done := tx.Exec("DELETE FROM "+removedTable+" WHERE id = ?", id)
		deleted += int(done.RowsAffected)
		return unavailable(done.Error)
	})
	if err != nil {
		return n, err
	}
	return n + deleted, nil
}

// historyLeft reports whether anything is left of what is about a removed dispatch. It waits for no lock.
func historyLeft(tx *gorm.DB, id string) (left bool, err error) {
	query, args := "SELECT (SELECT 1 FROM claims WHERE dispatch_id = ? LIMIT 1) IS NOT NULL", []any{id}
	for _, rule := range history(id) {
		query += " OR (SELECT 1 FROM " + rule.table + " WHERE " + rule.where + " LIMIT 1) IS NOT NULL"
		args = append(args, rule.args...)
	}
	err = tx.Raw(query, args...).Row().Scan(&left)
	return left, err
}

// deleteClaims deletes up to limit of a removed dispatch's claims, except those whose driver somebody else has locked.
//
// The number of a driver's next claim follows from the newest one, and keeps two claims at the same time apart. If that one goes, the
// numbers begin again; so the driver's version grows with it: a claim that was decided on before, and has the other number, fails.
func (s *Store) deleteClaims(tx *gorm.DB, id string, limit int) (n int, err error) {
	var claims []claimRow
	err = tx.Raw("SELECT id, driver_id, driver_seq FROM claims WHERE dispatch_id = ? ORDER BY round LIMIT ?"+s.dialect.skipLocked, id, limit).Scan(&claims).Error
	if err != nil {
		return 0, err
	}
	for _, c := range claims {
		var locked []dispatch.DriverID
		if err := tx.Raw("SELECT id FROM drivers WHERE id = ?"+s.dialect.skipLocked, c.DriverID).Scan(&locked).Error; err != nil {
			return 0, err
		}
		if len(locked) == 0 {
			if there, err := driverExists(tx, c.DriverID); err != nil {
				return 0, err
			} else if there {
				continue
			}
		}
		var newest int
		err := tx.Raw("SELECT COALESCE(MAX(driver_seq), 0) FROM claims"+s.dialect.forceIndex("uq_claims_driver_seq")+" WHERE driver_id = ?", c.DriverID).
			Scan(&newest).Error
		if err == nil && newest == c.DriverSeq {
			err = tx.Exec("UPDATE drivers SET indexed_version = indexed_version + 1, version = version + 1 WHERE id = ?", c.DriverID).Error
		}
		if err == nil {
			err = tx.Exec("DELETE FROM claims WHERE id = ?", c.ID).Error
		}
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// driverExists waits for no lock.
func driverExists(tx *gorm.DB, id dispatch.DriverID) (there bool, err error) {
	err = tx.Raw("SELECT COUNT(*) > 0 FROM drivers WHERE id = ?", id).Row().Scan(&there)
	return there, err
}
