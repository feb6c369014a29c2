package offers

import (
	"context"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
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

// round is what the events and the claim of one round say about it.
type round struct {
	Round    int
	Began    int64  // its first event, in microseconds
	Ended    *int64 // when it was accepted, expired or canceled; nil also if it ended as the next one began
	Reopened bool   // the dispatch was opened again for it
	Winner   dispatch.DriverID
}

// readRounds returns the rounds of a dispatch by their numbers. It leaves out declines, of which there may be one for each driver, as no
// round begins or ends with one.
func readRounds(db database.Tx, id dispatch.ID) (map[int]round, error) {
	var rows []round
	values := map[string]any{"id": id}
	err := db.Raw(`SELECT e.round, MIN(e.at) began, MAX(e.type = 'dispatch.reopened') reopened,
		MIN(CASE WHEN e.type IN ('dispatch.accepted', 'dispatch.expired', 'dispatch.canceled') THEN e.at END) ended,
		COALESCE((SELECT c.driver_id FROM claims c WHERE c.dispatch_id = @id AND c.round = e.round), '') winner
		FROM events e {force ix_events_dispatch} WHERE e.dispatch_id = @id AND e.type <> 'dispatch.declined' GROUP BY e.round`, values).
		Scan(&rows).Error
	rounds := make(map[int]round, len(rows))
	for _, r := range rows {
		rounds[r.Round] = r
	}
	return rounds, err
}

const funnelSQL = `
SELECT round, COUNT(DISTINCT driver_id) notified, COUNT(DISTINCT CASE WHEN state = 1 THEN driver_id END) push_accepted, 0 seen, 0 tapped
  FROM notifications WHERE dispatch_id = @id AND type IN ` + pushes.OfferTypes + ` AND driver_id <> '' GROUP BY round
UNION ALL SELECT round, 0, 0, COUNT(*), 0 FROM offers WHERE dispatch_id = @id AND seen_at IS NOT NULL GROUP BY round
UNION ALL SELECT round, 0, 0, 0, COUNT(DISTINCT driver_id) FROM taps WHERE dispatch_id = @id GROUP BY round`

// Funnel counts the drivers of each round, the first round first. The counts of notified drivers and of accepted pushes
// last as long as the notifications: in the first forgotten rounds both are 0 and mean nothing. The counts of drivers that
// saw the offer or tapped last as long as Prune keeps those rows. ErrNotFound.
func (s *Offers) Funnel(ctx context.Context, id dispatch.ID) (counts []outbox.Funnel, forgotten int, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		counts, forgotten, err = countFunnel(db, id)
		return err
	})
	return counts, forgotten, err
}

func countFunnel(db database.Tx, id dispatch.ID) (counts []outbox.Funnel, forgotten int, err error) {
	d, now, err := dispatches.Find(db, id)
	if err != nil {
		return nil, 0, err
	}
	rounds, err := readRounds(db, id)
	if err != nil {
		return nil, 0, database.Unavailable(err)
	}
	var rows []struct {
		Round int
		Of    outbox.Funnel `gorm:"embedded"`
	}
	if err := db.Raw(funnelSQL, map[string]any{"id": id}).Scan(&rows).Error; err != nil {
		return nil, 0, database.Unavailable(err)
	}
	counts = make([]outbox.Funnel, d.Round)
	for _, r := range rows {
		if r.Round > d.Round {
			continue // the round began after the dispatch was read, or an app sent a wrong number
		}
		f := &counts[r.Round-1]
		f.Notified, f.PushAccepted = f.Notified+r.Of.Notified, f.PushAccepted+r.Of.PushAccepted
		f.Seen, f.Tapped = f.Seen+r.Of.Seen, f.Tapped+r.Of.Tapped
	}
	for i := range counts {
		r, end := rounds[i+1], d.ExpiresAt
		if r.Winner != "" {
			counts[i].Won = 1
		}
		if next, ok := rounds[i+2]; r.Ended != nil {
			end = database.Time(*r.Ended)
		} else if ok && i+1 < d.Round {
			end = database.Time(next.Began)
		}
		if now.Sub(end) > pushes.KeepDone {
			forgotten, counts[i].Notified, counts[i].PushAccepted = i+1, 0, 0
		}
	}
	return counts, forgotten, nil
}
