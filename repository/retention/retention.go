package retention

import (
	"context"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
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
	for rules := s.rules(now); len(rules) > 0; {
		var more []rule
		for _, r := range rules {
			began, n := time.Now(), 0
			err := s.db.Work.Transact(ctx, func(tx database.Tx) (err error) {
				n, err = s.deleteExpired(tx, &r)
				return database.Unavailable(err)
			})
			if err != nil {
				return total, err
			}
			if total += n; n == deletedAtOnce || n > 0 && r.deleteParts != nil {
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

// rule says which rows of a table have expired: where finds them, by an index, and those first that order says.
type rule struct {
	table, key, where, order string
	args                     []any
	// deleteParts deletes what belongs to a row, deletedAtOnce rows at most, and returns how many. Then one transaction deletes one row,
	// after all its parts: the next one goes on with them. It is nil for rows that stand alone.
	deleteParts func(tx database.Tx, id string) (int, error)
}

// Columns of primary keys.
const (
	tapKey      = "dispatch_id, round, driver_id, result"
	offerKey    = "dispatch_id, round, driver_id"
	deliveryKey = "dispatch_id, webhook_id, event_id"
)

// rules returns what expires by the time now.
func (s *Cleaner) rules(now time.Time) []rule {
	ago := func(kept time.Duration) int64 { return database.Micros(now.Add(-kept)) }
	us := database.Micros(now)
	const done = "state = ? AND priority = 0 AND due_at <= ?"
	all := []rule{
		{"devices", "id", "quarantined_at < ?", "quarantined_at", []any{ago(keepQuarantined)}, deletePartsOfDevice},
		{"webhook_deliveries", deliveryKey, "created_at < ?", "created_at", []any{ago(webhooks.KeepDeliveries)}, nil},
		{"job_runs", "job, slot", "slot < ? AND status NOT IN ?", "slot", []any{ago(keepRuns), runs.Unfinished}, nil},
		{"supply", "at, region", "at < ?", "at", []any{ago(keepSupply)}, nil},
		{"idempotency_keys", "caller, name", "expires_at <= ?", "expires_at", []any{us}, nil},
		// The walk of an event that no relay has expanded. It would begin again.
		{"expansions", "event_id", "event_id < ?", "event_id", []any{dispatch.MinEventID(now.Add(-pushes.KeepSent))}, nil},
		{"events", "id", "dispatch_id = '' AND at < ?", "id", []any{ago(pushes.KeepDone)}, nil}, // see Dispatches.settle
		// One rule for each state: a condition "state <> 0" would not use the index. Who was sent an offer hears of its end, also if that
		// was put off: so the offer stays until then.
		{
			"notifications", "id", done + " AND NOT (type IN " + pushes.OfferTypes + " AND created_at > ?" +
				" AND EXISTS (SELECT 1 FROM dispatches d WHERE d.id = notifications.dispatch_id AND d.round = notifications.round" +
				" AND d.expires_at > ?))",
			"due_at", []any{pushes.StateDone, us, ago(pushes.KeepSent), ago(pushes.KeepDone)}, nil,
		},
		{"notifications", "id", done, "due_at", []any{pushes.StateDead, us}, nil},
		{"notifications", "id", done, "due_at", []any{pushes.StateDropped, us}, nil},
	}
	// Audit entries are found by their identifiers, which begin with the time. Taps and offers are found by their dispatch's and then
	// checked, as an old offer may have been tapped, seen or declined recently.
	if kept := s.Attempts; kept > 0 {
		oldest := dispatch.MinID(now.Add(-kept))
		all = append(all,
			rule{"taps", tapKey, "dispatch_id < ? AND last_at < ?", "dispatch_id", []any{oldest, ago(kept)}, nil},
			rule{"offers", offerKey, "dispatch_id < ? AND COALESCE(seen_at, 0) < ? AND COALESCE(declined_at, 0) < ?",
				"dispatch_id", []any{oldest, ago(kept), ago(kept)}, nil})
	}
	if kept := s.Audit; kept > 0 {
		all = append(all, rule{"audit", "id", "id < ?", "id", []any{dispatch.MinAuditID(now.Add(-kept))}, nil})
	}
	if kept := s.Ended; kept > 0 {
		for _, status := range []dispatch.Status{dispatch.Completed, dispatch.Canceled, dispatch.Expired} {
			ended := rule{"dispatches", "id", "status = ? AND updated_at < ?", "updated_at", []any{status, ago(kept)},
				s.deletePartsOfDispatch}
			all = append(all, ended)
		}
	}
	return all
}

// deleteExpired deletes up to deletedAtOnce rows by the rule, or one with what belongs to it.
func (s *Cleaner) deleteExpired(tx database.Tx, r *rule) (int, error) {
	if r.deleteParts == nil {
		return s.deleteRows(tx, r.table, r.key, r.where+" ORDER BY "+r.order, deletedAtOnce, r.args...)
	}
	var ids []string
	query := "SELECT " + r.key + " FROM " + r.table + " WHERE " + r.where + " ORDER BY " + r.order + " LIMIT 1 {skip_locked}"
	if err := tx.Raw(query, r.args...).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return 0, err
	}
	n, err := r.deleteParts(tx, ids[0])
	if err != nil || n == deletedAtOnce {
		return n, err
	}
	return n + 1, tx.Exec("DELETE FROM "+r.table+" WHERE id = ?", ids[0]).Error
}

// deleteRows deletes up to limit of the rows that where finds, and returns how many.
func (s *Cleaner) deleteRows(tx database.Tx, table, key, where string, limit int, args ...any) (int, error) {
	rows := where + " LIMIT ?"
	if s.db.SQLite() { // it has no DELETE with a LIMIT
		rows = "(" + key + ") IN (SELECT " + key + " FROM " + table + " WHERE " + rows + ")"
	}
	done := tx.Exec("DELETE FROM "+table+" WHERE "+rows, append(args[:len(args):len(args)], limit)...)
	return int(done.RowsAffected), done.Error
}

// deletePartsOfDevice deletes the device from all topics: a dead token can't be unsubscribed.
func deletePartsOfDevice(tx database.Tx, id string) (int, error) {
	names, err := topics.Names(tx)
	if err != nil {
		return 0, err
	}
	return 0, topics.Forget(tx, names, []string{id})
}

func (s *Cleaner) deletePartsOfDispatch(tx database.Tx, id string) (n int, err error) {
	for _, about := range [...]struct{ table, key, where string }{
		{"notifications", "id", "dispatch_id = ?"},
		{"offers", offerKey, "dispatch_id = ?"},
		{"taps", tapKey, "dispatch_id = ?"},
		{"webhook_deliveries", deliveryKey, "dispatch_id = ? AND status <> 'PENDING'"}, // pending ones are still sent
		{"events", "id", "dispatch_id = ?"},
	} {
		deleted, err := s.deleteRows(tx, about.table, about.key, about.where, deletedAtOnce-n, id)
		if n += deleted; err != nil || n == deletedAtOnce {
			return n, err
		}
	}
	// The claims are the last: a driver whose newest claim goes is locked until the commit.
	if err := renumberClaims(tx, id); err != nil {
		return n, err
	}
	deleted, err := s.deleteRows(tx, "claims", "id", "dispatch_id = ?", deletedAtOnce-n, id)
	if n += deleted; err != nil || n == deletedAtOnce {
		return n, err
	}
	return n, dispatches.ForgetWords(tx, id)
}

// renumberClaims is called before claims of a dispatch are deleted. The number of a driver's next claim follows from the newest one, and
// keeps two claims at the same time apart. If the newest goes, the numbers begin again; so the driver's version grows with it: a claim
// that was decided on before, and has the other number, fails. Who has a newer claim is not locked, and goes on.
func renumberClaims(tx database.Tx, id string) error {
	var drivers []dispatch.DriverID
	err := tx.Raw(`SELECT DISTINCT c.driver_id FROM claims c WHERE c.dispatch_id = ?
		AND NOT EXISTS (SELECT 1 FROM claims n WHERE n.driver_id = c.driver_id AND n.driver_seq > c.driver_seq)`, id).Scan(&drivers).Error
	if err != nil || len(drivers) == 0 {
		return err
	}
	return tx.Exec("UPDATE drivers {force PRIMARY} SET version = version + 1 WHERE id IN ?", drivers).Error
}
