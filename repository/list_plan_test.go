package repository_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

const aPage = 4

// pages reads a page of each list. next is the cursor of the page after limit.
func pages(db *Bench, z Sized) map[string]func(ctx context.Context, p dispatch.Page) (next string, err error) {
	all := map[string]func(context.Context, dispatch.Page) (string, error){
		"offers of a driver": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.OpenDispatchesFor(ctx, z.Driver, p))
		},
		"taps": func(ctx context.Context, p dispatch.Page) (string, error) {
			return tapPage(ctx, db, z, 0, p)
		},
		"taps of a round": func(ctx context.Context, p dispatch.Page) (string, error) {
			return tapPage(ctx, db, z, 1, p)
		},
		"offers of a dispatch": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Offers.Offers(ctx, z.Busy, 0, p))
		},
		"offers of a round": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Offers.Offers(ctx, z.Busy, 1, p))
		},
		"notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.Notifications.Notifications(ctx, z.Busy, p))
		},
		"all notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return CursorOf(db.NotificationsBy(ctx, "", p))
		},
		"drivers": func(ctx context.Context, p dispatch.Page) (string, error) {
			return byID(ctx, db, "drivers WHERE id < ? ORDER BY id DESC", "drv_v", p)
		},
		"events": func(ctx context.Context, p dispatch.Page) (string, error) {
			return byID(ctx, db, "events FORCE INDEX (ix_events_dispatch) WHERE dispatch_id = '"+string(z.Busy)+"' AND id > ? ORDER BY id", "", p)
		},
	}
	for _, status := range []dispatch.Status{
		"", dispatch.Scheduled, dispatch.Pending, dispatch.Accepted, dispatch.InProgress, dispatch.Completed, dispatch.Canceled, dispatch.Expired,
	} {
		for name, q := range map[string]dispatch.Query{
			"dispatches": {}, "a region's dispatches": {Region: "seoul"}, "a driver's dispatches": {Driver: z.Driver.ID},
		} {
			if q.Status = status; q.Driver != "" && status != "" && status != dispatch.Completed {
				continue
			}
			all[fmt.Sprintf("%s %s", name, status)] = func(ctx context.Context, p dispatch.Page) (string, error) {
				q.Page = p
				return CursorOf(db.Dispatches.List(ctx, q))
			}
		}
	}
	return all
}

func tapPage(ctx context.Context, db *Bench, z Sized, round int, p dispatch.Page) (string, error) {
	return CursorOf(db.Attempts(ctx, z.Busy, round, p))
}

// byID reads a page of a list whose cursors are identifiers.
func byID(ctx context.Context, db *Bench, from, first string, p dispatch.Page) (string, error) {
	var ids []string
	if p.Cursor == "" {
		p.Cursor = first
	}
	err := db.Serve.With(ctx).Raw("SELECT id FROM "+from+" LIMIT ?", p.Cursor, p.Limit).Scan(&ids).Error
	if len(ids) == 0 {
		return "", err
	}
	return ids[len(ids)-1], err
}

// A page costs the same wherever it is, and however much there is besides. No index is there in vain.
func TestPagesCostTheSame(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		z := db.Size(t)
		for name, read := range pages(db, z) {
			far, err := read(t.Context(), dispatch.Page{Limit: aPage * (FarPage - 1)})
			if err != nil || far == "" {
				t.Fatalf("%s: there is no page %d: %v", name, FarPage, err)
			}
			cost := map[string]int{}
			for page, cursor := range map[string]string{"1": "", "far": far} {
				var next string
				for _, s := range Statements(t, []database.Tx{db.Serve.With(t.Context()), db.Serve.With(t.Context())}, func() {
					next, err = read(t.Context(), dispatch.Page{Limit: aPage, Cursor: cursor})
				}) {
					db.MustSeek(t, name+", page "+page, s, 3*aPage)
					cost[page] += db.RowsRead(t, s)
				}
				if err != nil || next == "" {
					t.Errorf("%s, page %s: %q, %v", name, page, next, err)
				}
			}
			most := 600
			if strings.HasPrefix(name, "taps") {
				most = 2 * int(math.Pow10(Crowd)) // ranks compare all taps of the round
			}
			if first, later := cost["1"], cost["far"]; first > most || later > most || later > 2*first+20 {
				t.Errorf("%s: %d rows read for page 1, %d for page %d", name, first, later, FarPage)
			}
		}
		mustCountLittle(db, t, z)
		mustReadEveryIndex(db, t, z)
	})
}

// mustCountLittle: a count reads the counted rows only, however many other rows exist.
func mustCountLittle(db *Bench, t *testing.T, z Sized) {
	t.Helper()
	drivers := int(math.Pow10(Crowd))
	open, ended := int(math.Pow10(Listed))/5, 1000
	for name, c := range map[string]struct {
		read func() error
		most int
		scan int // of a table of that size it may read all
	}{
		"the board":           {func() error { return ErrorOf(db.Board.Board(t.Context(), "")) }, 5 * (open + ended), drivers},
		"the board, a region": {func() error { return ErrorOf(db.Board.Board(t.Context(), "seoul")) }, 5 * (open + ended), drivers},
		"the supply":          {func() error { return ErrorOf(db.Supply(t.Context(), "", 24)) }, 10, 0},
		"an offer":            {func() error { return ErrorOf(db.OfferTo(t.Context(), z.Busy, z.Driver.ID)) }, 60, 0},
		"a driver's signals":  {func() error { return ErrorOf(db.TapStatistics(t.Context(), z.Driver.ID)) }, 400, 0},
		"a driver's standing": {func() error {
			return ErrorOf(db.RaceStanding(t.Context(), z.Busy, 1, z.Driver.ID, "drv_x"))
		}, drivers * 8 / 10, 0},
		"the ranks of a round": {func() error {
			_, _, err := db.Attempts(t.Context(), z.Busy, 1, dispatch.Page{Limit: aPage})
			return err
		}, 2 * drivers, 0},
	} {
		cost := 0
		var err error
		for _, s := range Statements(t, []database.Tx{db.Serve.With(t.Context()), db.Serve.With(t.Context())}, func() { err = c.read() }) {
			if !strings.Contains(s, " FROM ") {
				continue // the clock
			}
			db.MustSeek(t, name, s, 2*c.scan)
			cost += db.RowsRead(t, s)
		}
		if err != nil || cost > c.most {
			t.Errorf("%s: %d rows read, %v", name, cost, err)
		}
		t.Logf("%s: %d rows read", name, cost)
	}
}
