package board

import (
	"cmp"
	"context"
	"maps"
	"slices"
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
	in := openIn(region)
	var counts []stateCount // by one statement, which sees one state of the table
	err = db.Raw(pendingSQL(in.where)+`
		UNION ALL SELECT status, '', COUNT(*), 0, 0 FROM dispatches {force `+in.index+`}
			WHERE status IN ('ACCEPTED', 'IN_PROGRESS')`+in.where+`
		GROUP BY status
		UNION ALL SELECT status, '', COUNT(*), 0, 0 FROM dispatches {force ix_dispatches_updated}
		WHERE status IN ('COMPLETED', 'CANCELED', 'EXPIRED') AND updated_at >= {now} - @window`+in.where+` GROUP BY status`,
		in.values).Scan(&counts).Error
	if err != nil {
		return dispatch.Board{}, database.Unavailable(err)
	}
	for _, c := range counts {
		b.Counts[c.Status] += c.N - c.Later
		b.Counts[dispatch.Scheduled] += c.Later
		b.Counts[dispatch.Expired] += c.Expired
	}
	if b.Unseen, b.UnseenIDs, err = findUnseen(db, in); err != nil {
		return dispatch.Board{}, err
	}
	regions, err := countSupply(db, counts)
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		if name != "" && (region == "" || name == region) {
			b.Regions = append(b.Regions, dispatch.Supply{At: now, Region: name, OnDuty: regions[name].OnDuty, Open: regions[name].Open})
		}
	}
	return b, err
}

// openDispatches is how a query of open dispatches is restricted to a region: by a last condition, and by the index in the order of the
// identifiers. The query may use the names of the values.
type openDispatches struct {
	where, index string
	values       map[string]any
}

// openIn returns the restriction to the region, "" for all.
func openIn(region string) openDispatches {
	values := map[string]any{
		"region": region, "window": endedWindow.Microseconds(), "unseen": unseenAfter.Microseconds(), "most": dispatch.MaxUnseen,
	}
	if region == "" {
		return openDispatches{"", "ix_dispatches_status", values}
	}
	return openDispatches{" AND region = @region", "ix_dispatches_region_status", values}
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
func findUnseen(db database.Tx, in openDispatches) (n int, first []dispatch.ID, err error) {
	var found []unseenRow
	err = db.Raw(`SELECT id, opens_at FROM dispatches d {force `+in.index+`}
		WHERE status = 'PENDING' AND opens_at < {now} - @unseen AND +expires_at > {now}
		AND (updated_at < {now} - @unseen OR (SELECT MIN(e.at) FROM events e {force ix_events_dispatch}
			WHERE e.dispatch_id = d.id AND e.round = d.round) < {now} - @unseen)
		AND (SELECT o.round FROM offers o {force PRIMARY} WHERE o.dispatch_id = d.id AND o.round = d.round
			AND o.seen_at IS NOT NULL LIMIT 1) IS NULL`+in.where+` ORDER BY id LIMIT @most`, in.values).Scan(&found).Error
	// They are in the order of their identifiers.
	slices.SortStableFunc(found, func(a, b unseenRow) int { return cmp.Compare(a.OpensAt, b.OpensAt) })
	first = []dispatch.ID{}
	for _, row := range found[:min(len(found), maxUnseenIDs)] {
		first = append(first, row.ID)
	}
	return len(found), first, database.Unavailable(err)
}

// maxSupplyPoints bounds the points of an answer, of which a chart draws a few hundred.
const maxSupplyPoints = 2000

// supplySteps are the minutes between two points: those of a day that a schedule of whole minutes is likely to meet.
var supplySteps = []int{1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440}

// Supply returns the counts of a region in the last hours, the oldest first. For the region "" it returns the counts of every region and
// the totals, which have the region "". A longer list than maxSupplyPoints is thinned: it has every second minute, every fifth, and so on.
// What is still too long has only its newest points.
func (s *Board) Supply(ctx context.Context, region string, hours int) (counted []dispatch.Supply, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		now, err := database.Clock(db)
		if err != nil {
			return err
		}
		for _, minutes := range supplySteps {
			step := time.Duration(minutes) * time.Minute
			counted, err = listSupply(db, region, now.Add(-time.Duration(hours)*time.Hour), now, step)
			if err != nil || len(counted) <= maxSupplyPoints {
				return err
			}
		}
		counted = counted[1:]
		return nil
	})
	return counted, err
}

// listSupply returns the newest points at every step, one more than maxSupplyPoints if there are more. It reads no others.
func listSupply(db database.Tx, region string, since, now time.Time, step time.Duration) ([]dispatch.Supply, error) {
	where, values := "at >= @since", map[string]any{"since": database.Micros(since), "region": region, "most": maxSupplyPoints + 1}
	if step > time.Minute {
		var minutes []int64
		for minute := now.Truncate(step); !minute.Before(since); minute = minute.Add(-step) {
			minutes = append(minutes, database.Micros(minute))
		}
		where, values["minutes"] = "at IN @minutes", minutes
	}
	if region != "" {
		where += " AND region = @region"
	}
	var rows []struct {
		At int64
		Of dispatch.Supply `gorm:"embedded"`
	}
	err := db.Raw("SELECT at, region, on_duty, open FROM supply {force PRIMARY} WHERE "+where+" ORDER BY at DESC, region DESC LIMIT @most",
		values).Scan(&rows).Error
	items := make([]dispatch.Supply, len(rows))
	for i, row := range rows {
		row.Of.At = database.Time(row.At)
		items[len(rows)-1-i] = row.Of
	}
	return items, database.Unavailable(err)
}
