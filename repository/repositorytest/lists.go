package repositorytest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
)

// Assigning is the domain's own rule of an assignment at that version, for a claim with an id of its own.
func Assigning(version int) dispatches.Rule {
	id := dispatch.NewClaimID(time.Now())
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		return d.Assign(version, c, id, "key_1", now)
	}
}

// AssignAt assigns the dispatch at that version to the driver.
func (db *Bench) AssignAt(ctx context.Context, id dispatch.ID, version int, driver dispatch.DriverID) (dispatch.Dispatch, error) {
	return db.Assign(ctx, id, driver, Assigning(version))
}

// Extended extends an offer at that version.
func Extended(version int) Change {
	return func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Extend(version, d.ExpiresAt.Add(time.Minute), "key_1", now)
	}
}

// Elsewhere adds n dispatches that are not due: most have ended, and the others are due later.
func (db *Bench) Elsewhere(t testing.TB, n int) {
	t.Helper()
	now := db.Now(t)
	rows := make([]dispatches.Row, n)
	for i := range rows {
		ago := time.Duration(i) * time.Minute
		d := dispatch.Dispatch{ID: dispatch.NewID(now), Terms: SomeTerms(now), Round: 1, Version: 1, CreatedAt: now, UpdatedAt: now}
		d.WorkStartsAt, d.WorkEndsAt = now.Add(-ago-time.Hour), now.Add(-ago)
		d.OpensAt, d.ExpiresAt = now.Add(-ago-time.Hour), now.Add(-ago)
		d.Claim = &dispatch.Claim{AcceptedAt: now.Add(-ago - time.Hour)}
		d.Status = []dispatch.Status{dispatch.Expired, dispatch.Canceled, dispatch.Completed}[i%3]
		if i%10 == 0 {
			d.Status = []dispatch.Status{dispatch.Pending, dispatch.Accepted, dispatch.InProgress}[i/10%3]
			d.WorkStartsAt, d.WorkEndsAt, d.ExpiresAt = now.Add(ago+100*time.Hour), now.Add(ago+101*time.Hour), now.Add(ago+time.Hour)
		}
		rows[i] = dispatches.RowOf(d)
	}
	db.Write(t, rows)
}

// OldRuns is how many runs there are that have ended, of two jobs.
var OldRuns = testkit.Scale(10_000, 100_000)

// Ran fills the ledger with runs of the job and of another that have ended, every seventh of them in vain.
func (db *Bench) Ran(t *testing.T) {
	t.Helper()
	db.Known(t, Report, "other")
	db.Exec(t, `INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, began_at, ended_at, result, error)
		VALUES ('report', 1000000, 'SUCCEEDED', 1, 'a/1', 1, '', 1000000,
		1000001, '', ''), ('other', 1000000, 'SUCCEEDED', 1, 'a/1', 1, '', 1000000, 1000001, '', '')`)
	n := OldRuns
	if db.SQLite() {
		n = 1000 // SQLite's plans don't depend on it
	}
	for have := 1; 2*have < n; have *= 2 {
		db.Exec(t, `INSERT INTO job_runs (job, slot, status, attempt, owner, fence, requested_by, began_at, ended_at, result, error)
			SELECT job, slot + ? * 1000000, CASE WHEN (slot / 1000000 + ?) % 7 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END,
		attempt, owner, fence,
			requested_by, began_at, ended_at, result, error FROM job_runs`, have, have)
	}
	analyze := "ANALYZE TABLE jobs, job_runs"
	if db.SQLite() {
		analyze = "ANALYZE"
	}
	db.Exec(t, analyze)
}

var (
	// Listed is how many dispatches there are, as a power of ten: one in five is open or being worked on.
	Listed = testkit.Scale(4, 5)
	// Crowd is the number of drivers, as a power of ten; all were notified of one dispatch, have seen it, and have tapped.
	Crowd = testkit.Scale(3, 4)
	// FarPage is a page that is far from the first.
	FarPage = testkit.Scale(50, 500)
)

// Numbers is a table of n from 0 to 10^digits - 1.
func Numbers(digits int) string {
	var from, sum []string
	for i := range digits {
		from = append(from, fmt.Sprintf("(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4"+
			" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) t%d", i))
		sum = append(sum, fmt.Sprintf("t%d.d * 1e%d", i, i))
	}
	return "(SELECT CAST(" + strings.Join(sum, " + ") + " AS SIGNED) n FROM " + strings.Join(from, ", ") + ") numbers"
}

// Sized is the data of the lists: dispatches, drivers, and one dispatch with every kind of row for every driver.
type Sized struct {
	Driver dispatch.Driver // has thousands of jobs, and is offered thousands
	Busy   dispatch.ID     // every driver was notified of it
}

// Size fills the tables, so that a list that reads too much is seen.
func (db *Bench) Size(t *testing.T) Sized {
	t.Helper()
	named := func(prefix string) string { return "CONCAT('" + prefix + "', LPAD(n, 26, '0'))" }
	now := database.Micros(db.Now(t))
	db.Exec(t, `INSERT INTO drivers (id, name, phone, regions, vehicle_class, locale, on_duty, version, created_at, updated_at)
		SELECT `+named("drv_")+`, n, '', '["seoul", "busan"]', 'scissor', '', n % 3 = 0, 1, 1, 1 FROM `+Numbers(Crowd)+` ORDER BY n`)
	db.IndexDrivers(t)
	db.Exec(t, fmt.Sprintf(`INSERT INTO dispatches (id, region, vehicle_class, site_address, work_starts_at, work_ends_at, fee_amount,
		fee_currency, note, opens_at, expires_at, status, round, version, claim_id, accepted_by, accepted_at, created_at, updated_at)
		SELECT %[1]s, IF(n DIV 20 %% 2, 'seoul', 'busan'), IF(n DIV 40 %% 2, 'scissor', 'boom'), 'x', 1, 2, 1, 'KRW', '',
		IF(n %% 20 = 0, %[2]d + 3600000000 + n, n), IF(n %% 2000 = 1, 5, %[2]d + 36000000000),
		ELT(n %% 20 + 1, 'PENDING', 'PENDING', 'ACCEPTED', 'IN_PROGRESS', 'EXPIRED', 'EXPIRED', 'EXPIRED', 'EXPIRED', 'EXPIRED',
		'EXPIRED', 'COMPLETED', 'COMPLETED', 'COMPLETED', 'COMPLETED', 'COMPLETED',
		'CANCELED', 'CANCELED', 'CANCELED', 'CANCELED', 'CANCELED'),
		1, 1, IF(n %% 20 IN (2, 3, 10, 11, 12, 13, 14), 'clm_x', NULL),
		IF(n %% 20 IN (2, 3, 10, 11, 12, 13, 14),
			IF(n DIV 20 %% 3, 'drv_00000000000000000000000001', 'drv_00000000000000000000000002'), NULL),
		n, n, IF(n < 1000, %[2]d, n) FROM %[3]s ORDER BY n`, named("dsp_"), now, Numbers(Listed)))
	const busy = "dsp_00000000000000000000000001"
	db.Exec(
		t,
		fmt.Sprintf("INSERT INTO offers (dispatch_id, round, driver_id, seen_at) SELECT '%s', 1, %s, 1 FROM %s ORDER BY n",
			busy, named("drv_"),
			Numbers(Crowd)),
	)
	db.Exec(t, fmt.Sprintf(`INSERT INTO taps (%[5]s) SELECT IF(n %% 2, '%[2]s', %[3]s), 1, CONCAT('drv_', LPAD(n DIV 2, 26, '0')),
		IF(n %% 3, 'ALREADY_TAKEN', 'NOT_OPEN_YET'), %[1]s, n, n, 1, 'here', '' FROM %[4]s
		ORDER BY n`, named("att_"), busy, named("dsp_"), Numbers(Crowd), TapColumns))
	db.Exec(t, fmt.Sprintf(`INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) SELECT %s, IF(n %% 2, '%s', %s),
		'dispatch.declined', 1, 'system', '', n FROM %s ORDER BY n`, named("evt_"), busy, named("dsp_"), Numbers(Crowd)))
	db.Exec(t, fmt.Sprintf(`INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent, state,
		priority, due_at, claim, attempts, result, reason, at, expires_at, created_at, sent_at) SELECT %[1]s, 'evt_x', %[1]s, '',
		CONCAT('drv_', LPAD(n DIV 2, 26, '0')), IF(n %% 2, '%[2]s', %[3]s), 1, 'dispatch.opened', 0, 1, 0, n, '', 1, '', '', 1, 1, n, 1
		FROM %[4]s ORDER BY n`,
		named("ntf_"), busy, named("dsp_"), Numbers(Crowd)))
	db.Exec(t, "ANALYZE TABLE drivers, driver_regions, driver_counts, dispatches, offers, taps, events, notifications, claims, supply")
	v := SomeDriver(0)
	v.ID = "drv_00000000000000000000000001"
	return Sized{v, busy}
}

// All is the whole of a list, page by page.
func All[T any](t *testing.T, limit int, next func(dispatch.Page) ([]T, string, error)) (items []T) {
	t.Helper()
	page := dispatch.Page{Limit: limit}
	for range 1000 {
		got, cursor, err := next(page)
		Must(t, err)
		if len(got) > limit || cursor != "" && len(got) != limit {
			t.Fatalf("a page of %d with the cursor %q, the limit is %d", len(got), cursor, limit)
		}
		items = append(items, got...)
		if cursor == "" {
			return items
		}
		page.Cursor = cursor
	}
	t.Fatal("the list has no end")
	return nil
}

// Listed is the whole of a list, so many dispatches a page.
func (db *Bench) Listed(t *testing.T, limit int, q dispatch.Query) []dispatch.Dispatch {
	t.Helper()
	return All(t, limit, func(p dispatch.Page) ([]dispatch.Dispatch, string, error) {
		q.Page = p
		return db.Dispatches.List(t.Context(), q)
	})
}

// ListIDs returns the identifiers of a list.
func (db *Bench) ListIDs(t *testing.T, q dispatch.Query) []dispatch.ID {
	t.Helper()
	return Ids(db.Listed(t, 3, q))
}

// Ids returns the identifiers of dispatches.
func Ids(items []dispatch.Dispatch) []dispatch.ID {
	return Collect(items, func(d dispatch.Dispatch) dispatch.ID { return d.ID })
}

// ErrorOfPage leaves out the rest of a page, or of two other results.
func ErrorOfPage[T, U any](_ T, _ U, err error) error { return err }

// CursorOf leaves out the items of a page.
func CursorOf[T any](_ []T, next string, err error) (string, error) { return next, err }

// TapColumns are the columns of the ledger of taps.
const TapColumns = "dispatch_id, round, driver_id, result, id, at, last_at, count, instance, app_version"
