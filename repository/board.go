package repository

import (
	"context"
	"maps"
	"slices"
	"time"

	"firsttap/dispatch"
)

const (
	// endedWindow is how far back the board counts ended dispatches.
	endedWindow = 24 * time.Hour
	// unseenAfter is the age from which an offer that no driver has seen is reported.
	unseenAfter = time.Minute
	// maxUnseenIDs bounds the unseen offers that the board lists.
	maxUnseenIDs = 200
)

func (s *Store) countBoard(ctx context.Context, region string) (dispatch.Board, error) {
	now, err := s.clock(s.general.WithContext(ctx))
	if err != nil {
		return dispatch.Board{}, err
	}
	b := dispatch.Board{Counts: map[dispatch.Status]int{
		dispatch.Scheduled: 0, dispatch.Pending: 0, dispatch.Accepted: 0, dispatch.InProgress: 0,
		dispatch.Completed: 0, dispatch.Canceled: 0, dispatch.Expired: 0,
	}, Since: now.Add(-endedWindow), Now: now}
	if err := s.countStates(ctx, &b, region); err != nil {
		return dispatch.Board{}, err
	}
	if err := s.findUnseen(ctx, &b, region); err != nil {
		return dispatch.Board{}, err
	}
	regions := map[string]supply{}
	if err := s.countDrivers(ctx, regions); err != nil {
		return dispatch.Board{}, err
	}
	if err := s.countOpen(ctx, regions); err != nil {
		return dispatch.Board{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		if name != "" && (region == "" || name == region) {
			b.Regions = append(b.Regions, dispatch.Supply{At: now, Region: name, OnDuty: regions[name].onDuty, Open: regions[name].open})
		}
	}
	return b, nil
}

// countStates counts dispatches by their status at b.Now, which may differ from the stored status.
func (s *Store) countStates(ctx context.Context, b *dispatch.Board, region string) error {
	inRegion, index, args := s.openScope(region)
	ended := s.dialect.forceIndex("ix_dispatches_updated")
	now, since := micros(b.Now), micros(b.Since)
	db := s.general.WithContext(ctx)
	var rows []struct {
		State string
		N     int
	}
	err := db.Raw(`SELECT CASE WHEN opens_at > ? THEN 'SCHEDULED' WHEN expires_at > ? THEN 'PENDING'
		WHEN expires_at >= ? THEN 'EXPIRED' ELSE '' END state, COUNT(*) n FROM dispatches`+index+` WHERE status = 'PENDING'`+inRegion+` GROUP BY 1
		UNION ALL SELECT status, COUNT(*) FROM dispatches`+index+` WHERE status IN ('ACCEPTED', 'IN_PROGRESS')`+inRegion+` GROUP BY status
		UNION ALL SELECT status, COUNT(*) FROM dispatches`+ended+` WHERE status IN ('COMPLETED', 'CANCELED', 'EXPIRED') AND updated_at >= ?`+inRegion+` GROUP BY status`,
		slices.Concat(args(now, now, since), args(), args(since))...).Scan(&rows).Error
	if err != nil {
		return unavailable(err)
	}
	for _, row := range rows {
		if row.State != "" {
			b.Counts[dispatch.Status(row.State)] += row.N
		}
	}
	return nil
}

// openScope returns how a query of open dispatches is restricted to the region, "" for all: the last condition, the index, and
// a function that appends the condition's argument.
func (s *Store) openScope(region string) (condition, index string, args func(before ...any) []any) {
	if region == "" {
		return "", s.dialect.forceIndex("ix_dispatches_status"), func(before ...any) []any { return before }
	}
	return " AND region = ?", s.dialect.forceIndex("ix_dispatches_region_status"), func(before ...any) []any { return append(before, region) }
}

// findUnseen lists the open offers that no driver has seen, and counts them if there are more than maxUnseenIDs.
//
// An offer is old enough if its dispatch has not changed for unseenAfter, or else if the first event of its round is that
// old: a longer window keeps the round, new terms begin another. The query uses MIN because MariaDB would read all events
// for EXISTS, and forces the index because MySQL would read all offers for each dispatch that it sorts.
func (s *Store) findUnseen(ctx context.Context, b *dispatch.Board, region string) error {
	inRegion, index, args := s.openScope(region)
	now, old := micros(b.Now), micros(b.Now.Add(-unseenAfter))
	unseen := ` FROM dispatches d` + index + ` WHERE status = 'PENDING' AND opens_at < ? AND expires_at > ?
		AND (updated_at < ? OR (SELECT MIN(e.at) FROM events e` + s.dialect.forceIndex("ix_events_dispatch") + ` WHERE e.dispatch_id = d.id AND e.round = d.round) < ?)
		AND NOT EXISTS (SELECT 1 FROM offers o` + s.dialect.forceIndex("PRIMARY") + ` WHERE o.dispatch_id = d.id AND o.round = d.round AND o.seen_at IS NOT NULL)` + inRegion
	unseenArgs, db := args(old, now, old, old), s.general.WithContext(ctx)
	b.UnseenIDs = []dispatch.ID{}
	if err := db.Raw("SELECT id"+unseen+" ORDER BY opens_at, id LIMIT ?", append(unseenArgs, maxUnseenIDs)...).Scan(&b.UnseenIDs).Error; err != nil {
		return unavailable(err)
	}
	if b.Unseen = len(b.UnseenIDs); b.Unseen < maxUnseenIDs {
		return nil
	}
	if err := db.Raw("SELECT COUNT(*)"+unseen, unseenArgs...).Scan(&b.Unseen).Error; err != nil {
		return unavailable(err)
	}
	b.Unseen = max(b.Unseen, len(b.UnseenIDs)) // drivers may have seen some between the two statements
	return nil
}

func (s *Store) listSupply(ctx context.Context, region string, hours int) ([]dispatch.Supply, error) {
	query := "SELECT at, region, on_duty, open FROM supply WHERE at >= " + s.dialect.now() + " - ?"
	args := []any{(time.Duration(hours) * time.Hour).Microseconds()}
	if region != "" {
		query, args = query+" AND region = ?", append(args, region)
	}
	var rows []struct {
		At     int64
		Region string
		OnDuty int
		Open   int
	}
	if err := s.general.WithContext(ctx).Raw(query+" ORDER BY at, region", args...).Scan(&rows).Error; err != nil {
		return nil, unavailable(err)
	}
	items := make([]dispatch.Supply, len(rows))
	for i, row := range rows {
		items[i] = dispatch.Supply{At: fromMicros(row.At), Region: row.Region, OnDuty: row.OnDuty, Open: row.Open}
	}
	return items, nil
}
