package repository

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// notification writes one that is dead, of an offer that stands, as edit changes it.
func (db *database) notification(t testing.TB, id dispatch.ID, edit func(*notificationRow)) notificationRow {
	t.Helper()
	now := time.Now()
	d := dispatch.Dispatch{ID: id, Round: 1, Window: dispatch.Window{ExpiresAt: now.Add(time.Hour)}}
	return db.notifications(t, d, 1, func(_ int, row *notificationRow) {
		row.DeviceID, row.DriverID, row.State, row.DueAt = dispatch.NewDeviceID(now), dispatch.NewDriverID(now), stateDead, row.ExpiresAt
		row.Attempts, row.Result, row.Reason = 3, "poison", "INVALID_ARGUMENT"
		if edit != nil {
			edit(row)
		}
	})[0]
}

func TestNotificationAsItIsShown(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id := db.add(t, nil).ID
		sent := db.notification(t, id, func(row *notificationRow) {
			row.State, row.SentAt, row.Silent, row.Result, row.Reason = stateDone, new(micros(time.Now())), true, "sent", ""
		})
		waiting := db.notification(t, id, func(row *notificationRow) {
			row.State, row.DriverID, row.DeviceID, row.Topic, row.Reason = statePending, "", "", "dsp_x", "까닭 🏗"
		})
		items, next, err := db.Notifications(t.Context(), id, dispatch.Page{Limit: 2})
		if err != nil || next != "" {
			t.Fatalf("%+v, %q, %v", items, next, err)
		}
		want := []outbox.Notification{{
			ID: sent.ID, Event: sent.EventID, Type: dispatch.EventOpened, Dispatch: id, Round: 1, Driver: sent.DriverID, Device: sent.DeviceID,
			Silent: true, Status: outbox.Sent, Attempts: 3, Result: "sent", EventAt: fromMicros(sent.At), CreatedAt: fromMicros(sent.CreatedAt),
			SentAt: fromOptionalMicros(sent.SentAt), UsefulUntil: fromMicros(sent.ExpiresAt),
		}, {
			ID: waiting.ID, Event: waiting.EventID, Type: dispatch.EventOpened, Dispatch: id, Round: 1, Topic: "dsp_x",
			Status: outbox.Pending, Attempts: 3, Result: "poison", Reason: "까닭 🏗", EventAt: fromMicros(waiting.At), CreatedAt: fromMicros(waiting.CreatedAt),
			NextAt: fromOptionalMicros(&waiting.DueAt), UsefulUntil: fromMicros(waiting.ExpiresAt),
		}}
		if !reflect.DeepEqual(items, want) {
			t.Errorf("got\n%+v, want\n%+v", items, want)
		}
	})
}

// TestNotificationPages neither repeat nor leave out, in the order promised, also where many are of one moment.
func TestNotificationPages(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		id, other := db.add(t, nil).ID, db.add(t, nil).ID
		now := time.Now()
		var rows []notificationRow
		for i := range 12 {
			rows = append(rows, db.notification(t, []dispatch.ID{id, other}[i%2], func(row *notificationRow) {
				row.State = []int{stateDead, stateDead, statePending, stateDone, stateDropped, stateDead}[i%6]
				row.CreatedAt, row.DueAt = micros(now)+int64(i/6), micros(now)+int64(100-i/6)
			}))
		}
		expect := func(what string, keep func(notificationRow) bool, less func(a, b notificationRow) int,
			read func(dispatch.Page) ([]outbox.Notification, string, error)) {
			t.Helper()
			want := rowIDs(slices.DeleteFunc(slices.SortedFunc(slices.Values(rows), less), func(r notificationRow) bool { return !keep(r) }))
			for _, limit := range []int{1, 2, 3, 5, 12, 200} {
				got := collect(all(t, limit, read), func(n outbox.Notification) dispatch.NotificationID { return n.ID })
				if !slices.Equal(got, want) {
					t.Errorf("%s by %d: got %v, want %v", what, limit, got, want)
				}
			}
		}
		byID := func(a, b notificationRow) int { return strings.Compare(string(a.ID), string(b.ID)) }
		expect("of a dispatch", func(r notificationRow) bool { return r.DispatchID == id },
			func(a, b notificationRow) int { return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), byID(a, b)) },
			func(p dispatch.Page) ([]outbox.Notification, string, error) {
				return db.Notifications(t.Context(), id, p)
			})
		for _, status := range []outbox.Status{"DEAD", "PENDING", "SENT", "DROPPED", ""} {
			expect(string(status), func(r notificationRow) bool { return status == "" || r.notification().Status == status },
				func(a, b notificationRow) int {
					if status == "" {
						return byID(b, a)
					}
					return cmp.Or(cmp.Compare(b.DueAt, a.DueAt), byID(b, a))
				}, func(p dispatch.Page) ([]outbox.Notification, string, error) {
					return db.NotificationsBy(t.Context(), status, p)
				})
		}
		for _, cursor := range []string{"x", "!", "AAAAAAAAAAA", cursor(notificationList, 0, "dsp_00000000000000000000000000")} {
			_, _, err1 := db.Notifications(t.Context(), id, dispatch.Page{Limit: 1, Cursor: cursor})
			_, _, err2 := db.NotificationsBy(t.Context(), "", dispatch.Page{Limit: 1, Cursor: cursor})
			mustBeError(t, cursor, err1, dispatch.ErrBadCursor)
			mustBeError(t, cursor, err2, dispatch.ErrBadCursor)
		}
		if items, next, err := db.Notifications(t.Context(), dispatch.NewID(now), dispatch.Page{Limit: 1}); len(items) != 0 || next != "" || err != nil {
			t.Errorf("of nothing: %v, %q, %v", items, next, err)
		}
	})
}

// many writes so many notifications, of which one in 25 is dead.
func (db *database) many(t *testing.T, n int) {
	t.Helper()
	now := time.Now()
	rows := make([]string, n)
	for i := range rows {
		state := stateDone
		if i%25 == 0 {
			state = stateDead
		}
		rows[i] = fmt.Sprintf("('%s', '%d', 'dev_1', '', '', 'dsp_1', 1, 'dispatch.opened', 0, %d, 0, %d, '', 0, '', '', 0, 0, 0)",
			dispatch.NewNotificationID(now), i, state, micros(now)+int64(i*7919%n))
	}
	for chunk := range slices.Chunk(rows, 500) {
		db.exec(t, `INSERT INTO notifications (id, event_id, device_id, topic, driver_id, dispatch_id, round, type, silent, state,
			priority, due_at, claim, attempts, result, reason, at, expires_at, created_at) VALUES `+strings.Join(chunk, ", "))
	}
}

// TestAPageCostsTheSame however many dead notifications there are: the database reads no more rows than it returns,
// and sorts none.
func TestAPageCostsTheSame(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const limit = 20
		total := testkit.Scale(1000, 4000)
		db.many(t, total)
		if !db.dialect.text.sqlite {
			db.exec(t, "ANALYZE TABLE notifications")
		}
		_, next, err := db.NotificationsBy(t.Context(), outbox.Dead, dispatch.Page{Limit: limit})
		must(t, err)
		_, later, err := db.NotificationsBy(t.Context(), outbox.Dead, dispatch.Page{Limit: limit, Cursor: next})
		must(t, err)
		for _, status := range []outbox.Status{outbox.Dead, ""} {
			for _, cursor := range []string{"", next, later} {
				query := db.serve.ToSQL(func(tx *gorm.DB) *gorm.DB {
					q, err := notificationsBy(tx, status, dispatch.Page{Limit: limit, Cursor: cursor})
					must(t, err)
					return q.Limit(limit + 1).Find(&[]notificationRow{})
				})
				if db.dialect.text.sqlite {
					db.mustNotSort(t, query)
				} else if n := db.rowsRead(t, query); n > 2*limit {
					t.Errorf("%s, cursor %q: %d rows read for %d", status, cursor, n, limit)
				}
			}
		}
	})
}

func (db *database) mustNotSort(t *testing.T, query string) {
	t.Helper()
	for _, step := range db.plan(t, query) {
		if reads := !strings.Contains(step, "SUBQUERY"); reads && !strings.Contains(step, "INDEX") || strings.Contains(step, "TEMP B-TREE") {
			t.Errorf("%s: %s", query, step)
		}
	}
}

// rowsRead is how many rows, and entries of indexes, the server touches for a query.
func (db *database) rowsRead(t *testing.T, query string) int {
	t.Helper()
	db.notOnTiDB(t, "count of the rows that a session has read")
	conn, err := db.raw.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	// No FLUSH STATUS: on MySQL it resets the counters of all sessions, also those of other tests.
	read := func() (total int) {
		t.Helper()
		rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Sort_rows'")
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var n int
			must(t, rows.Scan(new(string), &n))
			total += n
		}
		must(t, rows.Err())
		return total
	}
	first := read()
	before := read()
	must(t, errorOf(conn.ExecContext(t.Context(), query)))
	total := read() - before - (before - first) // what SHOW reads itself is no part of it
	if total <= 0 {
		t.Fatalf("%d rows were read", total)
	}
	return total
}

// TestRedrive: a dead notification is due at once with no attempts counted; no other row changes.
func TestRedrive(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		dead := db.notification(t, d.ID, nil)
		n, err := db.Redrive(t.Context(), dead.ID)
		if err != nil || n.Status != outbox.Pending || n.Attempts != 0 || n.NextAt == nil || time.Until(*n.NextAt) > time.Second {
			t.Errorf("%+v, %v", n, err)
		}
		if ids, err := db.as("me").dueNotifications(db.work, 10); !slices.Equal(ids, []dispatch.NotificationID{dead.ID}) || err != nil {
			t.Errorf("due: %v, %v", ids, err)
		}
		for what, edit := range map[string]func(*notificationRow){
			"pending": func(r *notificationRow) { r.State = statePending },
			"sent":    func(r *notificationRow) { r.State = stateDone },
			"dropped": func(r *notificationRow) { r.State = stateDropped },
			"over": func(r *notificationRow) {
				r.Type, r.ExpiresAt = dispatch.EventTaken, micros(time.Now().Add(-time.Second))
			},
			"another": func(r *notificationRow) { r.Round = 2 },
		} {
			row := db.notification(t, d.ID, edit)
			before := db.stored(t, row.ID)
			if _, err := db.Redrive(t.Context(), row.ID); !errors.Is(err, dispatch.ErrNotDead) || errors.Is(err, dispatch.ErrUnavailable) || strings.Contains(err.Error(), "SQL") {
				t.Errorf("%s: %v", what, err)
			}
			if after := db.stored(t, row.ID); !reflect.DeepEqual(before, after) {
				t.Errorf("%s: %+v became %+v", what, before, after)
			}
		}
		mustBeError(t, "unknown", errorOf(db.Redrive(t.Context(), dispatch.NewNotificationID(time.Now()))), dispatch.ErrNotificationNotFound)
	})
}

// An offer that died before its dispatch was extended can be sent again, until the new end.
func TestRedriveAfterAnExtension(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		dead := db.notification(t, d.ID, func(r *notificationRow) { r.ExpiresAt = micros(d.ExpiresAt) })
		d = db.mustUpdate(t, d.ID, extended(1))
		db.exec(t, "UPDATE notifications SET expires_at = ?", micros(time.Now().Add(-time.Second))) // the old end is over
		n, err := db.Redrive(t.Context(), dead.ID)
		if err != nil || n.Status != outbox.Pending || !n.UsefulUntil.Equal(d.ExpiresAt) {
			t.Errorf("%+v, %v; the dispatch ends at %s", n, err, d.ExpiresAt)
		}
	})
}

// mustWinOnce has do called n times at once, and fails the test unless one succeeds and the others are refused.
func mustWinOnce(t *testing.T, n int, refused error, do func(int) error) {
	t.Helper()
	errs := make([]error, n)
	testkit.Together(n, func(i int) { errs[i] = do(i) })
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		mustBeError(t, "one that is late", err, refused)
	}
	if won != 1 {
		t.Errorf("%d of %d have succeeded", won, n)
	}
}

func TestConcurrentRedrives(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		d := db.add(t, nil)
		for range 5 {
			id := db.notification(t, d.ID, nil).ID
			mustWinOnce(t, 16, dispatch.ErrNotDead, func(int) error { return errorOf(db.Redrive(t.Context(), id)) })
		}
	})
}
