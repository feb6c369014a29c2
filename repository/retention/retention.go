package retention

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/offers"
	"firsttap/repository/pushes"
	"firsttap/repository/runs"
	"firsttap/repository/topics"
	"firsttap/repository/webhooks"
)

// Periods are how long history is kept; 0 is for ever.
type Periods struct {
	// Ended is for dispatches that are over, from their last change, with all that is about them.
	Ended time.Duration
	// Attempts is for taps, and for which offers drivers have seen and declined.
	Attempts time.Duration
	Audit    time.Duration
}

// Cleaner deletes what is older than the retention says. It is safe for concurrent use.
type Cleaner struct {
	db *database.DB
	Periods
}

// New returns the cleaner of a database.
func New(db *database.DB, keep Periods) *Cleaner { return &Cleaner{db: db, Periods: keep} }

// How long other rows are kept. A notification expires by its due_at, the answer to an Idempotency-Key by its expires_at. Drivers
// are kept until they are erased.
const (
	keepQuarantined = 7 * 24 * time.Hour // an app in use registers its token again when it starts
	keepRuns        = 7 * 24 * time.Hour
	keepSupply      = 30 * 24 * time.Hour
	// KeepDeletedWebhook is more than a transaction takes: one that was under way at the deletion may still write deliveries.
	KeepDeletedWebhook = 10 * time.Minute
)

// deletedAtOnce bounds the rows that one transaction deletes: on SQLite a tap waits for it.
const deletedAtOnce = 500

// Prune deletes the rows that have expired, and returns how many, also with an error. It takes the rules in turn, so that no table
// waits for another. After each transaction it rests for as long as that took: others have the database for half of the time at least.
func (s *Cleaner) Prune(ctx context.Context) (total int, err error) {
	now, err := database.Clock(s.db.Work.With(ctx))
	if err != nil {
		return 0, err
	}
	return s.prune(ctx, now)
}

func (s *Cleaner) prune(ctx context.Context, now time.Time) (total int, err error) {
	for rules := s.expiryRules(now); len(rules) > 0; {
		var more []expiryRule
		for _, r := range rules {
			began, n := time.Now(), 0
			err := s.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
				n, err = s.deleteExpired(tx, &r)
				return database.Unavailable(err)
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
		return database.Unavailable(context.Cause(ctx))
	}
}

// expiryRule says which rows of a table have expired: where finds them, by an index, and those first that order says.
type expiryRule struct {
	table, key, where, order string
	args                     []any
	// children are what goes before a row, and with it, where their column of that row's id says so: then one transaction deletes one row.
	children []expiryRule
	// before is called in the transaction that deletes the row, or its children by this rule.
	before func(tx database.Tx, id string) error
}

func (r *expiryRule) isParent() bool { return r.before != nil || len(r.children) > 0 }

// expiryRules returns what expires by the time now.
func (s *Cleaner) expiryRules(now time.Time) []expiryRule {
	ago := func(kept time.Duration) int64 { return database.Micros(now.Add(-kept)) }
	rule := func(table, key, where, order string, args ...any) expiryRule {
		return expiryRule{table: table, key: key, where: where, order: order, args: args}
	}
	of := func(table, key, where string) expiryRule { return expiryRule{table: table, key: key, where: where} }

	quarantined := rule("devices", "id", "quarantined_at < ?", "quarantined_at", ago(keepQuarantined))
	quarantined.before = forgetDevice
	endpoints := rule("webhooks", "id", "status = 'DELETED' AND updated_at < ?", "id", ago(KeepDeletedWebhook))
	endpoints.children = []expiryRule{
		of("webhook_deliveries", "dispatch_id, webhook_id, event_id", "webhook_id = ?"),
	}
	all := []expiryRule{
		quarantined,
		endpoints,
		rule("webhook_deliveries", "dispatch_id, webhook_id, event_id", "created_at < ?", "created_at", ago(webhooks.KeepDeliveries)),
		rule("job_runs", "job, slot", "slot < ? AND status NOT IN ?", "slot", ago(keepRuns), runs.Unfinished),
		rule("supply", "at, region", "at < ?", "at", ago(keepSupply)),
		rule("idempotency_keys", "caller, name", "expires_at <= ?", "expires_at", database.Micros(now)),
		// The walk of an event that no relay has expanded. It would begin again.
		rule("expansions", "event_id", "event_id < ?", "event_id", dispatch.MinEventID(now.Add(-pushes.KeepSent))),
		rule("events", "id", "dispatch_id = '' AND at < ?", "id", ago(pushes.KeepDone)), // see Dispatches.settle
		// One rule for each state: a condition "state <> 0" would not use the index. Who was sent an offer hears of its end, also if that
		// was put off: so the offer stays until then.
		rule(
			"notifications",
			"id",
			"state = ? AND priority = 0 AND due_at <= ? AND NOT (type IN "+pushes.OfferTypes+" AND created_at > ? AND EXISTS"+
				" (SELECT 1 FROM dispatches d WHERE d.id = notifications.dispatch_id AND d.round = notifications.round AND d.expires_at > ?))",
			"due_at",
			pushes.StateDone, database.Micros(now), ago(pushes.KeepSent), ago(pushes.KeepDone),
		),
		rule("notifications", "id", "state = ? AND priority = 0 AND due_at <= ?", "due_at", pushes.StateDead, database.Micros(now)),
		rule("notifications", "id", "state = ? AND priority = 0 AND due_at <= ?", "due_at", pushes.StateDropped, database.Micros(now)),
	}
	// Audit entries are found by their identifiers, which begin with the time. Taps and offers are found by their dispatch's and then
	// checked, as an old offer may have been tapped, seen or declined recently.
	if kept := s.Attempts; kept > 0 {
		oldest := dispatch.MinID(now.Add(-kept))
		all = append(all,
			rule("taps", offers.TapColumns, "dispatch_id < ? AND last_at < ?", "dispatch_id", oldest, ago(kept)),
			rule("offers", "dispatch_id, round, driver_id", "dispatch_id < ? AND COALESCE(seen_at, 0) < ? AND COALESCE(declined_at, 0) < ?",
				"dispatch_id", oldest, ago(kept), ago(kept)))
	}
	if kept := s.Audit; kept > 0 {
		all = append(all, rule("audit", "id", "id < ?", "id", dispatch.MinAuditID(now.Add(-kept))))
	}
	if kept := s.Ended; kept > 0 {
		claims := of("claims", "id", "dispatch_id = ?")
		claims.before = s.renumberClaims
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			ended := rule("dispatches", "id", "status = ? AND updated_at < ?", "updated_at", status, ago(kept))
			ended.before = dispatches.ForgetWords
			ended.children = []expiryRule{
				of("notifications", "id", "dispatch_id = ?"),
				of("offers", "dispatch_id, round, driver_id", "dispatch_id = ?"),
				of("taps", offers.TapColumns, "dispatch_id = ?"),
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
func (s *Cleaner) deleteExpired(tx database.Tx, r *expiryRule) (n int, err error) {
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

func (s *Cleaner) deleteSome(tx database.Tx, r *expiryRule, args []any, limit int) (int, error) {
	rows := r.where + " LIMIT ?"
	if r.order != "" {
		rows = r.where + " ORDER BY " + r.order + " LIMIT ?"
	}
	if s.db.SQLite() { // it has no DELETE with a LIMIT
		rows = "(" + r.key + ") IN (SELECT " + r.key + " FROM " + r.table + " WHERE " + rows + ")"
	}
	done := tx.Exec("DELETE FROM "+r.table+" WHERE "+rows, append(args[:len(args):len(args)], limit)...)
	return int(done.RowsAffected), done.Error
}

// forgetDevice deletes the device from all topics: a dead token can't be unsubscribed.
func forgetDevice(tx database.Tx, id string) error {
	names, err := topics.Names(tx)
	if err != nil {
		return err
	}
	return topics.Forget(tx, names, []string{id})
}

// renumberClaims is called before claims of a dispatch are deleted. The number of a driver's next claim follows from the newest one, and
// keeps two claims at the same time apart. If the newest goes, the numbers begin again; so the driver's version grows with it: a claim
// that was decided on before, and has the other number, fails. Who has a newer claim is not locked, and goes on.
func (s *Cleaner) renumberClaims(tx database.Tx, id string) error {
	var drivers []dispatch.DriverID
	err := tx.Raw(`SELECT DISTINCT c.driver_id FROM claims c WHERE c.dispatch_id = ?
		AND NOT EXISTS (SELECT 1 FROM claims n WHERE n.driver_id = c.driver_id AND n.driver_seq > c.driver_seq)`, id).Scan(&drivers).Error
	if err != nil || len(drivers) == 0 {
		return err
	}
	return tx.Exec("UPDATE drivers {force PRIMARY} SET version = version + 1 WHERE id IN ?", drivers).Error
}
