package board

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/runs"
)

const (
	// endedWindow is how far back the board counts ended dispatches.
	endedWindow = 24 * time.Hour
	// unseenAfter is the age from which an offer that no driver has seen is reported.
	unseenAfter = time.Minute
	// maxUnseenIDs bounds the unseen offers that the board lists.
	maxUnseenIDs = 200
)

// Board counts for the backoffice. It is safe for concurrent use.
type Board struct {
	db   *database.DB
	runs *runs.Runs
	// tapsKept is how long taps are kept, 0 for ever.
	tapsKept time.Duration
}

// New returns the board of a database in which taps are kept for that long, 0 for ever.
func New(db *database.DB, r *runs.Runs, tapsKept time.Duration) *Board {
	return &Board{db, r, tapsKept}
}

// Board counts the dispatches of a region, "" for all, and the drivers on duty in each region. It counts the open and recently ended
// dispatches by indexes, and reads the open ones until it has found dispatch.MaxUnseen that nobody has seen.
func (s *Board) Board(ctx context.Context, region string) (b dispatch.Board, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		b, err = s.countBoard(db, region)
		return err
	})
	return b, err
}

func (s *Board) countBoard(db database.Tx, region string) (dispatch.Board, error) {
	now, err := database.Clock(db)
	if err != nil {
		return dispatch.Board{}, err
	}
	b := dispatch.Board{Counts: map[dispatch.Status]int{
		dispatch.Scheduled: 0, dispatch.Pending: 0, dispatch.Accepted: 0, dispatch.InProgress: 0,
		dispatch.Completed: 0, dispatch.Canceled: 0, dispatch.Expired: 0,
	}, Since: now.Add(-endedWindow), Now: now}
	regions := map[string]supply{}
	if err := s.countStates(db, &b, regions, region); err != nil {
		return dispatch.Board{}, err
	}
	if err := s.findUnseen(db, &b, region); err != nil {
		return dispatch.Board{}, err
	}
	if err := countDrivers(db, regions); err != nil {
		return dispatch.Board{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		if name != "" && (region == "" || name == region) {
			b.Regions = append(b.Regions, dispatch.Supply{At: now, Region: name, OnDuty: regions[name].onDuty, Open: regions[name].open})
		}
	}
	return b, nil
}

// stateCount counts dispatches of a region that are stored with a status.
type stateCount struct {
	State   string // as stored
	Region  string
	N       int // negative for offers that are stored as PENDING and have ended: another row counts these offers, too
	Later   int // how many of N are not open yet
	Expired int // how many of the offers that have ended the board counts as EXPIRED
}

// countStates counts dispatches by their status at b.Now, which may differ from the stored status, and the open ones of each region. The
// parts are one statement, which sees one state of the table.
func (s *Board) countStates(db database.Tx, b *dispatch.Board, regions map[string]supply, region string) error {
	now, since := strconv.FormatInt(database.Micros(b.Now), 10), strconv.FormatInt(database.Micros(b.Since), 10)
	inRegion, index, args := openScope(region)
	var rows []stateCount
	err := db.Raw(pendingSQL(now, since, inRegion)+`
		UNION ALL SELECT status, '', COUNT(*), 0, 0 FROM dispatches {force `+index+`} WHERE status IN ('ACCEPTED', 'IN_PROGRESS')`+inRegion+`
		GROUP BY status
		UNION ALL SELECT status, '', COUNT(*), 0, 0 FROM dispatches {force ix_dispatches_updated}
		WHERE status IN ('COMPLETED', 'CANCELED', 'EXPIRED') AND updated_at >= `+since+inRegion+` GROUP BY status`,
		slices.Repeat(args(), 4)...).Scan(&rows).Error
	if err != nil {
		return database.Unavailable(err)
	}
	for _, row := range rows {
		b.Counts[dispatch.Status(row.State)] += row.N - row.Later
		b.Counts[dispatch.Scheduled] += row.Later
		b.Counts[dispatch.Expired] += row.Expired
	}
	addOpen(regions, rows)
	return nil
}

// openScope returns how a query of open dispatches is restricted to the region, "" for all: the last condition, the index in the order of
// the identifiers, and a function that appends the condition's argument.
func openScope(region string) (condition, index string, args func(before ...any) []any) {
	if region == "" {
		return "", "ix_dispatches_status", func(before ...any) []any { return before }
	}
	return " AND region = ?", "ix_dispatches_region_status", func(before ...any) []any { return append(before, region) }
}

type unseenRow struct {
	ID      dispatch.ID
	OpensAt int64
}

// findUnseen counts the open offers that no driver has seen, up to dispatch.MaxUnseen, and lists those of them that opened first.
//
// An offer is old enough if its dispatch has not changed for unseenAfter, or else if the first event of its round is that
// old: a longer window keeps the round, new terms begin another. The query uses MIN and LIMIT because MariaDB would read all
// events and offers there are for EXISTS, and forces the index because MySQL would read all offers for each dispatch.
// Identifiers begin with the time of creation: the query reads along an index, the oldest first, and stops when it has found
// enough. The + keeps SQLite from another index, by which it would have to read all and sort.
func (s *Board) findUnseen(db database.Tx, b *dispatch.Board, region string) error {
	inRegion, index, args := openScope(region)
	now, old := database.Micros(b.Now), database.Micros(b.Now.Add(-unseenAfter))
	var found []unseenRow
	err := db.Raw(`SELECT id, opens_at FROM dispatches d {force `+index+`} WHERE status = 'PENDING' AND opens_at < ? AND +expires_at > ?
		AND (updated_at < ? OR (SELECT MIN(e.at) FROM events e {force ix_events_dispatch} WHERE e.dispatch_id = d.id AND e.round = d.round) < ?)
		AND (SELECT o.round FROM offers o {force PRIMARY} WHERE o.dispatch_id = d.id AND o.round = d.round
		AND o.seen_at IS NOT NULL LIMIT 1) IS NULL`+inRegion+`
		ORDER BY id LIMIT ?`, append(args(old, now, old, old), dispatch.MaxUnseen)...).Scan(&found).Error
	if err != nil {
		return database.Unavailable(err)
	}
	slices.SortFunc(found, func(x, y unseenRow) int { return cmp.Or(cmp.Compare(x.OpensAt, y.OpensAt), cmp.Compare(x.ID, y.ID)) })
	b.Unseen, b.UnseenIDs = len(found), []dispatch.ID{}
	for _, row := range found[:min(len(found), maxUnseenIDs)] {
		b.UnseenIDs = append(b.UnseenIDs, row.ID)
	}
	return nil
}

const (
	// maxSupplyPoints bounds the points of an answer, of which a chart draws a few hundred.
	maxSupplyPoints = 2000
	// supplySample is the time in which points are counted to know how many there are.
	supplySample = time.Hour
)

// supplySteps are the minutes between two points: those of a day that a schedule of whole minutes is likely to meet.
var supplySteps = []int{1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440}

// Supply returns the counts of a region in the last hours, the oldest first. For the region "" it returns the counts of every region and
// the totals, which have the region "". A longer list than maxSupplyPoints is thinned: it has every second minute, every fifth, and so on.
// What is still too long has only its newest points.
func (s *Board) Supply(ctx context.Context, region string, hours int) (counted []dispatch.Supply, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		counted, err = s.listSupply(db, region, hours)
		return err
	})
	return counted, err
}

// listSupply reads little more than it returns: the points of every nth minute by their keys.
func (s *Board) listSupply(db database.Tx, region string, hours int) ([]dispatch.Supply, error) {
	now, err := database.Clock(db)
	if err != nil {
		return nil, err
	}
	since := now.Add(-time.Duration(hours) * time.Hour)
	inRegion, args := "", []any{database.Micros(since), database.Micros(now.Add(-min(supplySample, now.Sub(since))))}
	if region != "" {
		inRegion, args = " AND region = ?", append(args, region)
	}
	var first *int64
	var recent int
	err = db.Raw(
		"SELECT (SELECT MIN(at) FROM supply WHERE at >= ?), (SELECT COUNT(*) FROM supply WHERE at >= ?"+inRegion+")",
		args...,
	).Row().Scan(&first, &recent)
	if err != nil || first == nil {
		return []dispatch.Supply{}, database.Unavailable(err)
	}
	points := float64(recent) * max(1, float64(now.Sub(database.Time(*first)))/float64(supplySample))
	at, args := "at >= ?", []any{database.Micros(since)}
	if step := supplyStep(points); step > time.Minute {
		var minutes []int64
		for minute := now.Truncate(step); !minute.Before(database.Time(*first)); minute = minute.Add(-step) {
			minutes = append(minutes, database.Micros(minute))
		}
		at, args = "at IN ?", []any{minutes}
	}
	if region != "" {
		args = append(args, region)
	}
	var rows []struct {
		At     int64
		Region string
		OnDuty int
		Open   int
	}
	err = db.Raw("SELECT at, region, on_duty, open FROM supply {force PRIMARY} WHERE "+at+inRegion+" ORDER BY at DESC, region DESC LIMIT ?",
		append(args, maxSupplyPoints)...).Scan(&rows).Error
	items := make([]dispatch.Supply, len(rows))
	for i, row := range rows {
		items[len(rows)-1-i] = dispatch.Supply{At: database.Time(row.At), Region: row.Region, OnDuty: row.OnDuty, Open: row.Open}
	}
	return items, database.Unavailable(err)
}

// supplyStep returns the time between the points of an answer, of which there are that many, one a minute.
func supplyStep(points float64) time.Duration {
	for _, step := range supplySteps {
		if points <= maxSupplyPoints*float64(step) {
			return time.Duration(step) * time.Minute
		}
	}
	return 24 * time.Hour
}
