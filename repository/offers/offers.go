package offers

import (
	"context"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/pushes"
)

// Offers is what each driver was offered, saw, declined and tapped. It is safe for concurrent use.
type Offers struct {
	db         *database.DB
	dispatches *dispatches.Dispatches
}

// New returns the offers in a database.
func New(db *database.DB, d *dispatches.Dispatches) *Offers { return &Offers{db, d} }

// MarkSeen writes when the driver's app first showed the offer of the round, which must exist.
func (s *Offers) MarkSeen(ctx context.Context, id dispatch.ID, round int, driver dispatch.DriverID) error {
	return s.db.Decide.Transact(ctx, func(tx database.Tx) error {
		err := tx.Exec("INSERT INTO offers (dispatch_id, round, driver_id, seen_at) VALUES (?, ?, ?, {now})"+
			" {or_update} seen_at = COALESCE(seen_at, {now})", id, round, driver).Error
		return database.Unavailable(err)
	})
}

// funnelRow is what one table holds about one round.
type funnelRow struct {
	Round, Told, Accepted, Seen, Won, Tapped int
	Began, Ended                             *int64
}

const funnelSQL = `
SELECT round, COUNT(DISTINCT driver_id) told, COUNT(DISTINCT CASE WHEN state = 1 THEN driver_id END) accepted,
  0 seen, 0 won, 0 tapped, NULL began, NULL ended
  FROM notifications WHERE dispatch_id = ? AND type IN ` + pushes.OfferTypes + ` AND driver_id <> '' GROUP BY round
UNION ALL SELECT round, 0, 0, COUNT(*), 0, 0, NULL, NULL
  FROM offers WHERE dispatch_id = ? AND seen_at IS NOT NULL GROUP BY round
UNION ALL SELECT round, 0, 0, 0, COUNT(*), 0, NULL, NULL FROM claims WHERE dispatch_id = ? GROUP BY round
UNION ALL SELECT round, 0, 0, 0, 0, COUNT(DISTINCT driver_id), NULL, NULL FROM taps WHERE dispatch_id = ? GROUP BY round
UNION ALL SELECT round, 0, 0, 0, 0, 0, MIN(at),
  MIN(CASE WHEN type IN ('dispatch.accepted', 'dispatch.expired', 'dispatch.canceled') THEN at END)
  FROM events WHERE dispatch_id = ? GROUP BY round`

// Funnel counts the drivers of each round, the first round first. The counts of notified drivers and of accepted pushes
// last as long as the notifications: in the first forgotten rounds both are 0 and mean nothing. The counts of drivers that
// saw the offer or tapped last as long as Prune keeps those rows. ErrNotFound.
func (s *Offers) Funnel(ctx context.Context, id dispatch.ID) (rounds []outbox.Funnel, forgotten int, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		rounds, forgotten, err = s.countFunnel(db, id)
		return err
	})
	return rounds, forgotten, err
}

func (s *Offers) countFunnel(db database.Tx, id dispatch.ID) (rounds []outbox.Funnel, forgotten int, err error) {
	d, now, err := dispatches.Find(db, id)
	if err != nil {
		return nil, 0, err
	}
	var rows []funnelRow
	if err := db.Raw(funnelSQL, id, id, id, id, id).Scan(&rows).Error; err != nil {
		return nil, 0, database.Unavailable(err)
	}
	rounds = make([]outbox.Funnel, d.Round)
	over := make([]*int64, d.Round+1)
	over[d.Round] = database.OptionalMicros(&d.ExpiresAt)
	for _, r := range rows {
		if r.Round > d.Round {
			continue // the round began after the dispatch was read, or an app sent a wrong number
		}
		f := &rounds[r.Round-1]
		f.Notified, f.PushAccepted, f.Seen = f.Notified+r.Told, f.PushAccepted+r.Accepted, f.Seen+r.Seen
		f.Won, f.Tapped = f.Won+r.Won, f.Tapped+r.Tapped
		if r.Ended != nil {
			over[r.Round] = r.Ended
		}
		if r.Began != nil && over[r.Round-1] == nil {
			over[r.Round-1] = r.Began // a round without an ending event ended when the next one began
		}
	}
	for i := range rounds {
		if end := over[i+1]; end != nil && now.Sub(database.Time(*end)) > pushes.KeepDone {
			forgotten, rounds[i].Notified, rounds[i].PushAccepted = i+1, 0, 0
		}
	}
	return rounds, forgotten, nil
}
