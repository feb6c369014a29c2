package repository

import (
	"context"
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

// How long other rows are kept. A notification expires by its due_at, the answer to an Idempotency-Key by its expires_at. Drivers
// are kept until they are erased.
const (
	keepQuarantined = 7 * 24 * time.Hour // an app in use registers its token again when it starts
	keepRuns        = 7 * 24 * time.Hour
	keepSupply      = 30 * 24 * time.Hour
	keepSent        = 90 * 24 * time.Hour // sent notifications of an offer without an end
	// keepDeliveries is how long a delivery is kept, and sent if it is still pending: its endpoint may be paused for ever.
	keepDeliveries = 30 * 24 * time.Hour
	// keepDeletedWebhook is more than a transaction takes: one that was under way at the deletion may still write deliveries.
	keepDeletedWebhook = 10 * time.Minute
)

// deletedAtOnce bounds the rows that one transaction deletes: on SQLite a tap waits for it.
const deletedAtOnce = 500

// Prune deletes the rows that have expired, and returns how many, also with an error. It takes the rules in turn, so that no table
// waits for another. After each transaction it rests for as long as that took: others have the database for half of the time at least.
func (s *Store) Prune(ctx context.Context) (total int, err error) {
	now, err := s.clock(s.work.WithContext(ctx))
	if err != nil {
		return 0, err
	}
	for rules := s.expiryRules(now); len(rules) > 0; {
		var more []expiryRule
		for _, r := range rules {
			began, n := time.Now(), 0
			err := s.transactWithRetry(ctx, s.work, func(tx *gorm.DB) (err error) {
				n, err = s.deleteExpired(tx, &r)
				return unavailable(err)
			})
			if err != nil {
				return total, err
			}
			if total += n; n == deletedAtOnce || n > 0 && r.isParent() {
				more = append(more, r)
			}
			if err := rest(ctx, time.Since(began)); err != nil {
				return total, err
			}
		}
		rules = more
	}
	return total, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	}
}

// expiryRule says which rows of a table have expired: where finds them, by an index, and those first that order says.
type expiryRule struct {
	table, key, where, order string
	args                     []any
	// children are what goes before a row, and with it, where their column of that row's id says so: then one transaction deletes one row.
	children []expiryRule
	// before is called in the transaction that deletes the row, or its children by this rule.
	before func(tx *gorm.DB, id string) error
}

func (r *expiryRule) isParent() bool { return r.before != nil || len(r.children) > 0 }

// expiryRules returns what expires by the time now.
func (s *Store) expiryRules(now time.Time) []expiryRule {
	ago := func(kept time.Duration) int64 { return micros(now.Add(-kept)) }
	rule := func(table, key, where, order string, args ...any) expiryRule {
		return expiryRule{table: table, key: key, where: where, order: order, args: args}
	}
	of := func(table, key, where string) expiryRule { return expiryRule{table: table, key: key, where: where} }

	quarantined := rule("devices", "id", "quarantined_at < ?", "quarantined_at", ago(keepQuarantined))
	quarantined.before = forgetDevice
	webhooks := rule("webhooks", "id", "status = 'DELETED' AND updated_at < ?", "id", ago(keepDeletedWebhook))
	webhooks.children = []expiryRule{
		of("webhook_deliveries", "dispatch_id, webhook_id, event_id", "webhook_id = ?"),
	}
	all := []expiryRule{
		quarantined,
		webhooks,
		rule("webhook_deliveries", "dispatch_id, webhook_id, event_id", "created_at < ?", "created_at", ago(keepDeliveries)),
		rule("job_runs", "job, slot", "slot < ? AND status NOT IN ?", "slot", ago(keepRuns), unfinished),
		rule("supply", "at, region", "at < ?", "at", ago(keepSupply)),
		rule("idempotency_keys", "caller, name", "expires_at <= ?", "expires_at", micros(now)),
		// The walk of an event that no relay has expanded. It would begin again.
		rule("expansions", "event_id", "event_id < ?", "event_id", dispatch.MinEventID(now.Add(-keepSent))),
		rule("events", "id", "dispatch_id = '' AND at < ?", "id", ago(keepDone)), // see Store.settle
		// One rule for each state: a condition "state <> 0" would not use the index. Who was sent an offer hears of its end, also if that
		// was put off: so the offer stays until then.
		rule("notifications", "id", "state = ? AND priority = 0 AND due_at <= ? AND NOT (type IN "+offerTypes+" AND created_at > ? AND EXISTS"+
			" (SELECT 1 FROM dispatches d WHERE d.id = notifications.dispatch_id AND d.round = notifications.round AND d.expires_at > ?))",
			"due_at", stateDone, micros(now), ago(keepSent), ago(keepDone)),
		rule("notifications", "id", "state = ? AND priority = 0 AND due_at <= ?", "due_at", stateDead, micros(now)),
		rule("notifications", "id", "state = ? AND priority = 0 AND due_at <= ?", "due_at", stateDropped, micros(now)),
	}
	// Audit entries are found by their identifiers, which begin with the time. Taps and offers are found by their dispatch's and then
	// checked, as an old offer may have been tapped, seen or declined recently.
	if kept := s.options.Retention.Attempts; kept > 0 {
		oldest := dispatch.MinID(now.Add(-kept))
		all = append(all,
			rule("taps", tapPrimaryKey, "dispatch_id < ? AND last_at < ?", "dispatch_id", oldest, ago(kept)),
			rule("offers", "dispatch_id, round, driver_id", "dispatch_id < ? AND COALESCE(seen_at, 0) < ? AND COALESCE(declined_at, 0) < ?",
				"dispatch_id", oldest, ago(kept), ago(kept)))
	}
	if kept := s.options.Retention.Audit; kept > 0 {
		all = append(all, rule("audit", "id", "id < ?", "id", dispatch.MinAuditID(now.Add(-kept))))
	}
	if kept := s.options.Retention.Ended; kept > 0 {
		claims := of("claims", "id", "dispatch_id = ?")
		claims.before = s.renumberClaims
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			ended := rule("dispatches", "id", "status = ? AND updated_at < ?", "updated_at", status, ago(kept))
			ended.before = s.forgetWords
			ended.children = []expiryRule{
				of("notifications", "id", "dispatch_id = ?"),
				of("offers", "dispatch_id, round, driver_id", "dispatch_id = ?"),
				of("taps", tapPrimaryKey, "dispatch_id = ?"),
				// Those that are pending are still sent.
				of("webhook_deliveries", "dispatch_id, webhook_id, event_id", "dispatch_id = ? AND status <> 'PENDING'"),
				of("events", "id", "dispatch_id = ?"),
				claims,
			}
			all = append(all, ended)
		}
	}
	return all
}

// deleteExpired deletes up to deletedAtOnce rows by the rule, or one with its children. A row stays for the next call if it has more.
func (s *Store) deleteExpired(tx *gorm.DB, r *expiryRule) (n int, err error) {
	if !r.isParent() {
		return s.deleteSome(tx, r, r.args, deletedAtOnce)
	}
	var ids []string
	query := "SELECT " + r.key + " FROM " + r.table + " WHERE " + r.where + " ORDER BY " + r.order + " LIMIT 1 {skip_locked}"
	if err := tx.Raw(query, r.args...).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, child := range r.children {
		if child.before != nil {
			if err := child.before(tx, ids[0]); err != nil {
				return 0, err
			}
		}
		deleted, err := s.deleteSome(tx, &child, []any{ids[0]}, deletedAtOnce-n)
		if n += deleted; err != nil || n == deletedAtOnce {
			return n, err
		}
	}
	if r.before != nil {
		if err := r.before(tx, ids[0]); err != nil {
			return 0, err
		}
	}
	return n + 1, tx.Exec("DELETE FROM "+r.table+" WHERE id = ?", ids[0]).Error
}

func (s *Store) deleteSome(tx *gorm.DB, r *expiryRule, args []any, limit int) (int, error) {
	rows := r.where + " LIMIT ?"
	if r.order != "" {
		rows = r.where + " ORDER BY " + r.order + " LIMIT ?"
	}
	if s.dialect.text.sqlite { // it has no DELETE with a LIMIT
		rows = "(" + r.key + ") IN (SELECT " + r.key + " FROM " + r.table + " WHERE " + rows + ")"
	}
	done := tx.Exec("DELETE FROM "+r.table+" WHERE "+rows, append(args[:len(args):len(args)], limit)...)
	return int(done.RowsAffected), done.Error
}

// forgetDevice deletes the device from all topics: a dead token can't be unsubscribed.
func forgetDevice(tx *gorm.DB, id string) error {
	topics, err := topicNames(tx)
	if err != nil {
		return err
	}
	return forgetMembers(tx, topics, []string{id})
}

// forgetWords deletes the words by which a dispatch is found.
func (s *Store) forgetWords(tx *gorm.DB, id string) error {
	var row dispatchRow
	if err := tx.Raw("SELECT "+textColumns+" FROM dispatches WHERE id = ?", id).Scan(&row).Error; err != nil {
		return err
	}
	return s.removeWords(tx, s.dispatchWords(), id, row.words())
}

// renumberClaims is called before claims of a dispatch are deleted. The number of a driver's next claim follows from the newest one, and
// keeps two claims at the same time apart. If the newest goes, the numbers begin again; so the driver's version grows with it: a claim
// that was decided on before, and has the other number, fails. Who has a newer claim is not locked, and goes on.
func (s *Store) renumberClaims(tx *gorm.DB, id string) error {
	var drivers []dispatch.DriverID
	err := tx.Raw(`SELECT DISTINCT c.driver_id FROM claims c WHERE c.dispatch_id = ?
		AND NOT EXISTS (SELECT 1 FROM claims n WHERE n.driver_id = c.driver_id AND n.driver_seq > c.driver_seq)`, id).Scan(&drivers).Error
	if err != nil || len(drivers) == 0 {
		return err
	}
	return tx.Exec("UPDATE drivers {force PRIMARY} SET version = version + 1 WHERE id IN ?", drivers).Error
}
