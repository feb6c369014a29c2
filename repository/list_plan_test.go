package repository

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/testkit"
)

const aPage = 4

var (
	// listed is how many dispatches there are, as a power of ten: one in five is open or being worked on.
	listed = testkit.Scale(4, 5)
	// crowd is the number of drivers, as a power of ten; all were notified of one dispatch, have seen it, and have tapped.
	crowd   = testkit.Scale(3, 4)
	farPage = testkit.Scale(50, 500)
)

// numbers is a table of n from 0 to 10^digits - 1.
func numbers(digits int) string {
	var from, sum []string
	for i := range digits {
		from = append(from, fmt.Sprintf("(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4"+
			" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) t%d", i))
		sum = append(sum, fmt.Sprintf("t%d.d * 1e%d", i, i))
	}
	return "(SELECT CAST(" + strings.Join(sum, " + ") + " AS SIGNED) n FROM " + strings.Join(from, ", ") + ") numbers"
}

// sized is the data of the lists: dispatches, drivers, and one dispatch with every kind of row for every driver.
type sized struct {
	driver dispatch.Driver // has thousands of jobs, and is offered thousands
	busy   dispatch.ID     // every driver was notified of it
}

func (db *database) size(t *testing.T) sized {
	t.Helper()
	named := func(prefix string) string { return "CONCAT('" + prefix + "', LPAD(n, 26, '0'))" }
	now := micros(db.now(t))
	db.exec(t, `INSERT INTO drivers (id, name, phone, regions, vehicle_class, locale, on_duty, version, created_at, updated_at)
		SELECT `+named("drv_")+`, n, '', '["seoul", "busan"]', 'scissor', '', n % 3 = 0, 1, 1, 1 FROM `+numbers(crowd)+` ORDER BY n`)
	db.indexDrivers(t)
	db.exec(t, fmt.Sprintf(`INSERT INTO dispatches (id, region, vehicle_class, site_address, work_starts_at, work_ends_at, fee_amount,
		fee_currency, note, opens_at, expires_at, status, round, version, claim_id, accepted_by, accepted_at, created_at, updated_at)
		SELECT %[1]s, IF(n DIV 20 %% 2, 'seoul', 'busan'), IF(n DIV 40 %% 2, 'scissor', 'boom'), 'x', 1, 2, 1, 'KRW', '',
		IF(n %% 20 = 0, %[2]d + 3600000000 + n, n), IF(n %% 2000 = 1, 5, %[2]d + 36000000000),
		ELT(n %% 20 + 1, 'PENDING', 'PENDING', 'ACCEPTED', 'IN_PROGRESS', 'EXPIRED', 'EXPIRED', 'EXPIRED', 'EXPIRED', 'EXPIRED',
		'EXPIRED', 'COMPLETED', 'COMPLETED', 'COMPLETED', 'COMPLETED', 'COMPLETED', 'CANCELED', 'CANCELED', 'CANCELED', 'CANCELED', 'CANCELED'),
		1, 1, IF(n %% 20 IN (2, 3, 10, 11, 12, 13, 14), 'clm_x', NULL),
		IF(n %% 20 IN (2, 3, 10, 11, 12, 13, 14), IF(n DIV 20 %% 3, 'drv_00000000000000000000000001', 'drv_00000000000000000000000002'), NULL),
		n, n, IF(n < 1000, %[2]d, n) FROM %[3]s ORDER BY n`, named("dsp_"), now, numbers(listed)))
	const busy = "dsp_00000000000000000000000001"
	db.exec(t, fmt.Sprintf("INSERT INTO offers (dispatch_id, round, driver_id, seen_at) SELECT '%s', 1, %s, 1 FROM %s ORDER BY n", busy, named("drv_"), numbers(crowd)))
	db.exec(t, fmt.Sprintf(`INSERT INTO taps (%[5]s) SELECT IF(n %% 2, '%[2]s', %[3]s), 1, CONCAT('drv_', LPAD(n DIV 2, 26, '0')),
		IF(n %% 3, 'ALREADY_TAKEN', 'NOT_OPEN_YET'), %[1]s, n, n, 1, 'here', '' FROM %[4]s ORDER BY n`, named("att_"), busy, named("dsp_"), numbers(crowd), tapColumns))
	db.exec(t, fmt.Sprintf(`INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) SELECT %s, IF(n %% 2, '%s', %s),
		'dispatch.opened', 1, 'system', '', n FROM %s ORDER BY n`, named("evt_"), busy, named("dsp_"), numbers(crowd)))
	db.exec(t, fmt.Sprintf(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent, state,
		priority, due_at, claim, attempts, result, reason, at, expires_at, created_at, sent_at) SELECT %[1]s, 'evt_x', %[1]s, '',
		CONCAT('drv_', LPAD(n DIV 2, 26, '0')), IF(n %% 2, '%[2]s', %[3]s), 1, 'dispatch.opened', 0, 1, 0, 1, '', 1, '', '', 1, 1, n, 1 FROM %[4]s ORDER BY n`,
		named("ntf_"), busy, named("dsp_"), numbers(crowd)))
	db.exec(t, "ANALYZE TABLE drivers, driver_regions, driver_counts, dispatches, offers, taps, events, notifications, claims, supply")
	v := someDriver(0)
	v.ID = "drv_00000000000000000000000001"
	return sized{v, busy}
}

// pages reads a page of each list. next is the cursor of the page after limit.
func (db *database) pages(z sized) map[string]func(ctx context.Context, p dispatch.Page) (next string, err error) {
	all := map[string]func(context.Context, dispatch.Page) (string, error){
		"offers of a driver": func(ctx context.Context, p dispatch.Page) (string, error) {
			return cursorOf(db.OpenDispatchesFor(ctx, z.driver, p))
		},
		"taps": func(ctx context.Context, p dispatch.Page) (string, error) {
			return db.tapPage(ctx, z, 0, p)
		},
		"taps of a round": func(ctx context.Context, p dispatch.Page) (string, error) {
			return db.tapPage(ctx, z, 1, p)
		},
		"offers of a dispatch": func(ctx context.Context, p dispatch.Page) (string, error) {
			return cursorOf(db.Offers(ctx, z.busy, 0, p))
		},
		"offers of a round": func(ctx context.Context, p dispatch.Page) (string, error) {
			return cursorOf(db.Offers(ctx, z.busy, 1, p))
		},
		"notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return cursorOf(db.Notifications(ctx, z.busy, p))
		},
		"all notifications": func(ctx context.Context, p dispatch.Page) (string, error) {
			return cursorOf(db.NotificationsBy(ctx, "", p))
		},
		"drivers": func(ctx context.Context, p dispatch.Page) (string, error) {
			return db.byID(ctx, "drivers WHERE id < ? ORDER BY id DESC", "drv_v", p)
		},
		"events": func(ctx context.Context, p dispatch.Page) (string, error) {
			return db.byID(ctx, "events FORCE INDEX (ix_events_dispatch) WHERE dispatch_id = '"+string(z.busy)+"' AND id > ? ORDER BY id", "", p)
		},
	}
	for _, status := range []dispatch.Status{
		"", dispatch.Scheduled, dispatch.Pending, dispatch.Accepted, dispatch.InProgress, dispatch.Completed, dispatch.Canceled, dispatch.Expired,
	} {
		for name, q := range map[string]dispatch.Query{
			"dispatches": {}, "a region's dispatches": {Region: "seoul"}, "a driver's dispatches": {Driver: z.driver.ID},
		} {
			if q.Status = status; q.Driver != "" && status != "" && status != dispatch.Completed {
				continue
			}
			all[fmt.Sprintf("%s %s", name, status)] = func(ctx context.Context, p dispatch.Page) (string, error) {
				q.Page = p
				return cursorOf(db.List(ctx, q))
			}
		}
	}
	return all
}

func (db *database) tapPage(ctx context.Context, z sized, round int, p dispatch.Page) (string, error) {
	_, next, _, err := readTapPage(db.serve.WithContext(ctx), z.busy, round, p)
	return next, err
}

// byID reads a page of a list whose cursors are identifiers.
func (db *database) byID(ctx context.Context, from, first string, p dispatch.Page) (string, error) {
	var ids []string
	if p.Cursor == "" {
		p.Cursor = first
	}
	err := db.serve.WithContext(ctx).Raw("SELECT id FROM "+from+" LIMIT ?", p.Cursor, p.Limit).Scan(&ids).Error
	if len(ids) == 0 {
		return "", err
	}
	return ids[len(ids)-1], err
}

// mustSeek fails the test if the server would read a table of more than a few rows from end to end.
func (db *database) mustSeek(t *testing.T, name, statement string, few int) {
	t.Helper()
	for _, p := range db.explain(t, statement) {
		var rows int
		fmt.Sscan(p["rows"], &rows)
		if made := p["table"] == "" || strings.HasPrefix(p["table"], "<"); !made && p["type"] == "ALL" && rows > few {
			t.Errorf("%s: %s\n%v", name, statement, p)
		}
	}
}

// A page costs the same wherever it is, and however much there is besides. No index is there in vain.
func TestPagesCostTheSame(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		z := db.size(t)
		for name, read := range db.pages(z) {
			far, err := read(t.Context(), dispatch.Page{Limit: aPage * (farPage - 1)})
			if err != nil || far == "" {
				t.Fatalf("%s: there is no page %d: %v", name, farPage, err)
			}
			cost := map[string]int{}
			for page, cursor := range map[string]string{"1": "", "far": far} {
				var next string
				for _, s := range statements(t, []*gorm.DB{db.serve, db.serve}, func() {
					next, err = read(t.Context(), dispatch.Page{Limit: aPage, Cursor: cursor})
				}) {
					db.mustSeek(t, name+", page "+page, s, 3*aPage)
					cost[page] += db.rowsRead(t, s)
				}
				if err != nil || next == "" {
					t.Errorf("%s, page %s: %q, %v", name, page, next, err)
				}
			}
			most := 600
			if strings.HasPrefix(name, "taps") {
				most = int(math.Pow10(crowd)) // ranks compare all taps of the round
			}
			if first, later := cost["1"], cost["far"]; first > most || later > most || later > 2*first+20 {
				t.Errorf("%s: %d rows read for page 1, %d for page %d", name, first, later, farPage)
			}
		}
		db.mustCountLittle(t, z)
		db.mustReadEveryIndex(t, z)
	})
}

// mustCountLittle: a count reads the counted rows only, however many other rows exist.
func (db *database) mustCountLittle(t *testing.T, z sized) {
	t.Helper()
	drivers := int(math.Pow10(crowd))
	open, ended := int(math.Pow10(listed))/5, 1000
	for name, c := range map[string]struct {
		read func() error
		most int
		scan int // of a table of that size it may read all
	}{
		"the board":           {func() error { return errorOf(db.Board(t.Context(), "")) }, 5 * (open + ended), drivers},
		"the board, a region": {func() error { return errorOf(db.Board(t.Context(), "seoul")) }, 5 * (open + ended), drivers},
		"the supply":          {func() error { return errorOf(db.Supply(t.Context(), "", 24)) }, 10, 0},
		"an offer":            {func() error { return errorOf(db.OfferTo(t.Context(), z.busy, z.driver.ID)) }, 60, 0},
		"a driver's signals":  {func() error { return errorOf(db.TapStatistics(t.Context(), z.driver.ID)) }, 400, 0},
		"a driver's standing": {func() error { return errorOf(db.RaceStanding(t.Context(), z.busy, 1, z.driver.ID, "drv_x")) }, drivers * 8 / 10, 0},
		"the ranks of a round": {func() error {
			_, _, err := db.Attempts(t.Context(), z.busy, 1, dispatch.Page{Limit: aPage})
			return err
		}, 2 * drivers, 0},
	} {
		cost := 0
		var err error
		for _, s := range statements(t, []*gorm.DB{db.serve, db.serve}, func() { err = c.read() }) {
			if !strings.Contains(s, " FROM ") {
				continue // the clock
			}
			db.mustSeek(t, name, s, 2*c.scan)
			cost += db.rowsRead(t, s)
		}
		if err != nil || cost > c.most {
			t.Errorf("%s: %d rows read, %v", name, cost, err)
		}
		t.Logf("%s: %d rows read", name, cost)
	}
}
