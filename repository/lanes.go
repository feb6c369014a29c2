package repository

import (
	"context"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
)

// The next_at of a notification has two meanings. After its first lease it is a time: the end of the lease, or of the pause
// before the next attempt. Before that it is a turn, which is smaller than any time, so that the notification is due. Each
// lane has a range of turns, lower ranges for more important lanes. Within its lane, an event's first 64 notifications get
// the turn after the one that is being leased, the next 64 the turn after that, and so on. So a small event waits for at
// most 64 notifications of each larger event, and never for a turn that is given out later. The index on (state, next_at,
// id) finds the next notification by either meaning.
const (
	laneWidth = 1 << 40
	// minTimestamp is the least next_at that is a time: some weeks into 1970.
	minTimestamp = 4 * laneWidth
	// perTurn is how many of an event's notifications share a turn.
	perTurn = 64
)

// laneRange returns the range of a lane's next_at: from the first to before the second, or until now if the second is 0. A row
// with a smaller next_at than any turn comes first.
func laneRange(l outbox.Lane) (from, before int64) {
	switch l {
	case outbox.LaneClaimant:
		return 0, 2 * laneWidth
	case outbox.LaneOffer:
		return 2 * laneWidth, 3 * laneWidth
	case outbox.LaneOfferEnd:
		return 3 * laneWidth, minTimestamp
	case outbox.LaneRetry:
	}
	return minTimestamp, 0
}

// currentTurn returns the turn that is being leased in a lane; first is that of its first due notification, nil for none.
func currentTurn(l outbox.Lane, first *int64) int64 {
	if first != nil {
		return *first
	}
	from, _ := laneRange(l)
	return from
}

// turnOf returns the turn of an event's i-th notification after its last turn.
func (e *expansion) turnOf(l outbox.Lane, i int) int64 {
	if l == outbox.LaneClaimant {
		return laneWidth // these are few, and need no turns
	}
	return e.lastTurns[l] + 1 + int64(i/perTurn)
}

// firstDue returns the SQL for the next_at of a lane's first due notification.
func (s *Store) firstDue(l outbox.Lane) string {
	return "SELECT next_at FROM notifications WHERE " + s.dueCondition(l) + " ORDER BY next_at LIMIT 1"
}

// dueCondition returns the SQL condition for a due notification of a lane.
func (s *Store) dueCondition(l outbox.Lane) string {
	from, before := laneRange(l)
	if before == 0 {
		return fmt.Sprintf("state = 0 AND next_at >= %d AND next_at <= ", from) + s.dialect.now()
	}
	return fmt.Sprintf("state = 0 AND next_at >= %d AND next_at < %d", from, before)
}

// leaseShares leases up to limit of the due notifications, of each lane its share.
func (o *Outbox) leaseShares(ctx context.Context, limit int) (ids []dispatch.NotificationID, err error) {
	for len(ids) < limit {
		waiting, err := o.lanesDue(ctx)
		if err != nil {
			return ids, err
		}
		shares, lanes := o.divideAmongLanes(limit-len(ids), waiting)
		if lanes == 0 {
			return ids, nil
		}
		leased, err := o.leaseByShare(ctx, shares, lanes)
		ids = append(ids, leased...)
		if err != nil || len(leased) == 0 || lanes == 1 && len(leased) < limit {
			return ids, err
		}
	}
	return ids, nil
}

// lanesDue returns which lanes have due notifications.
func (o *Outbox) lanesDue(ctx context.Context) (waiting [outbox.LaneCount]bool, err error) {
	exists := make([]string, outbox.LaneCount)
	into := make([]any, outbox.LaneCount)
	for l := range waiting {
		exists[l] = "EXISTS (SELECT 1 FROM notifications WHERE " + o.dueCondition(outbox.Lane(l)) + ")"
		into[l] = &waiting[l]
	}
	err = o.relay.WithContext(ctx).Raw("SELECT " + strings.Join(exists, ", ")).Row().Scan(into...)
	return waiting, unavailable(err)
}

// divideAmongLanes divides n among the waiting lanes, and returns how many lanes have a share.
func (o *Outbox) divideAmongLanes(n int, waiting [outbox.LaneCount]bool) (shares [outbox.LaneCount]int, lanes int) {
	o.turns.Lock()
	defer o.turns.Unlock()
	for range n {
		l, ok := o.turns.Next(waiting)
		if !ok {
			break
		}
		if shares[l] == 0 {
			lanes++
		}
		shares[l]++
	}
	return shares, lanes
}

// leaseByShare leases up to its share from each lane.
func (o *Outbox) leaseByShare(ctx context.Context, shares [outbox.LaneCount]int, lanes int) ([]dispatch.NotificationID, error) {
	parts := make([]string, 0, lanes)
	limits := make([]any, 0, lanes)
	for l, share := range shares {
		if share == 0 {
			continue
		}
		due := "SELECT id FROM notifications WHERE " + o.dueCondition(outbox.Lane(l)) + " ORDER BY next_at, id LIMIT ?" + o.dialect.skipLocked
		switch {
		case lanes == 1:
		case o.dialect.skipLocked == "": // SQLite allows no parentheses around a part of a UNION
			due = "SELECT id FROM (" + due + ")"
		default:
			due = "(" + due + ")"
		}
		parts, limits = append(parts, due), append(limits, share)
	}
	return leaseRows[dispatch.NotificationID](ctx, o, "notifications", "id", strings.Join(parts, " UNION ALL "), limits...)
}

// leaseRows leases the rows of a table that the query due finds, and returns their keys. On a server, due also locks them.
func leaseRows[K ~string](ctx context.Context, o *Outbox, table, key, due string, args ...any) (keys []K, err error) {
	now, term := o.dialect.now(), o.LeaseTerm.Microseconds()
	lease := "UPDATE " + table + o.dialect.forceIndex("PRIMARY") + " SET claim = ?, next_at = " + now + " + ? WHERE " + key + " IN "
	if o.dialect.skipLocked == "" {
		err = o.relay.WithContext(ctx).Raw(lease+"("+due+") RETURNING "+key, append([]any{o.Owner, term}, args...)...).Scan(&keys).Error
		return keys, unavailable(err)
	}
	// Where leases wait for each other, they may do so in a circle.
	err = o.transactWithRetry(ctx, o.relay, func(tx *gorm.DB) error {
		keys = nil
		err := tx.Raw(due, args...).Scan(&keys).Error
		if err != nil || len(keys) == 0 {
			return unavailable(err)
		}
		return unavailable(tx.Exec(lease+"?", o.Owner, term, keys).Error)
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}
