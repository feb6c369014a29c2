package pushes_test

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
)

func TestNotificationAsItIsShown(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		id := db.Add(t, nil).ID
		sent := db.WriteNotification(t, id, func(row *pushes.NotificationRow) {
			row.State, row.SentAt, row.Silent, row.Result, row.Reason = pushes.StateDone, new(database.Micros(time.Now())), true, "sent", ""
		})
		waiting := db.WriteNotification(t, id, func(row *pushes.NotificationRow) {
			row.State, row.DriverID, row.DeviceID, row.Topic, row.Reason = pushes.StatePending, "", "", "dsp_x", "까닭 🏗"
		})
		items, next, err := db.Notifications.Notifications(t.Context(), id, dispatch.Page{Limit: 2})
		if err != nil || next != "" {
			t.Fatalf("%+v, %q, %v", items, next, err)
		}
		want := []outbox.Notification{{
			ID: sent.ID, Event: sent.EventID, Type: dispatch.EventOpened, Dispatch: id, Round: 1, Driver: sent.DriverID, Device: sent.DeviceID,
			Silent: true, Status: outbox.Sent, Attempts: 3, Result: "sent", EventAt: database.Time(sent.At), CreatedAt: database.Time(sent.CreatedAt),
			SentAt: database.OptionalTime(sent.SentAt), UsefulUntil: database.Time(sent.ExpiresAt),
		}, {
			ID: waiting.ID, Event: waiting.EventID, Type: dispatch.EventOpened, Dispatch: id, Round: 1, Topic: "dsp_x",
			Status: outbox.Pending, Attempts: 3, Result: "poison", Reason: "까닭 🏗", EventAt: database.Time(waiting.At), CreatedAt: database.Time(waiting.CreatedAt),
			NextAt: database.OptionalTime(&waiting.DueAt), UsefulUntil: database.Time(waiting.ExpiresAt),
		}}
		if !reflect.DeepEqual(items, want) {
			t.Errorf("got\n%+v, want\n%+v", items, want)
		}
	})
}

// TestNotificationPages neither repeat nor leave out, in the order promised, also where many are of one moment.
func TestNotificationPages(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		id, other := db.Add(t, nil).ID, db.Add(t, nil).ID
		now := time.Now()
		var rows []pushes.NotificationRow
		for i := range 12 {
			rows = append(rows, db.WriteNotification(t, []dispatch.ID{id, other}[i%2], func(row *pushes.NotificationRow) {
				row.State = []int{pushes.StateDead, pushes.StateDead, pushes.StatePending, pushes.StateDone, pushes.StateDropped, pushes.StateDead}[i%6]
				row.CreatedAt, row.DueAt = database.Micros(now)+int64(i/6), database.Micros(now)+int64(100-i/6)
			}))
		}
		expect := func(what string, keep func(pushes.NotificationRow) bool, less func(a, b pushes.NotificationRow) int,
			read func(dispatch.Page) ([]outbox.Notification, string, error)) {
			t.Helper()
			want := RowIDs(slices.DeleteFunc(slices.SortedFunc(slices.Values(rows), less), func(r pushes.NotificationRow) bool { return !keep(r) }))
			for _, limit := range []int{1, 2, 3, 5, 12, 200} {
				got := Collect(All(t, limit, read), func(n outbox.Notification) dispatch.NotificationID { return n.ID })
				if !slices.Equal(got, want) {
					t.Errorf("%s by %d: got %v, want %v", what, limit, got, want)
				}
			}
		}
		byID := func(a, b pushes.NotificationRow) int { return strings.Compare(string(a.ID), string(b.ID)) }
		expect("of a dispatch", func(r pushes.NotificationRow) bool { return r.DispatchID == id },
			func(a, b pushes.NotificationRow) int {
				return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), byID(a, b))
			},
			func(p dispatch.Page) ([]outbox.Notification, string, error) {
				return db.Notifications.Notifications(t.Context(), id, p)
			})
		for _, status := range []outbox.Status{"DEAD", "PENDING", "SENT", "DROPPED", ""} {
			expect(string(status), func(r pushes.NotificationRow) bool { return status == "" || r.Notification().Status == status },
				func(a, b pushes.NotificationRow) int {
					if status == "" {
						return byID(b, a)
					}
					return cmp.Or(cmp.Compare(b.DueAt, a.DueAt), byID(b, a))
				}, func(p dispatch.Page) ([]outbox.Notification, string, error) {
					return db.NotificationsBy(t.Context(), status, p)
				})
		}
		for _, cursor := range []string{"x", "!", "AAAAAAAAAAA", database.Cursor(database.NotificationList, 0, "dsp_00000000000000000000000000")} {
			_, _, err1 := db.Notifications.Notifications(t.Context(), id, dispatch.Page{Limit: 1, Cursor: cursor})
			_, _, err2 := db.NotificationsBy(t.Context(), "", dispatch.Page{Limit: 1, Cursor: cursor})
			MustBeError(t, cursor, err1, dispatch.ErrBadCursor)
			MustBeError(t, cursor, err2, dispatch.ErrBadCursor)
		}
		if items, next, err := db.Notifications.Notifications(t.Context(), dispatch.NewID(now), dispatch.Page{Limit: 1}); len(items) != 0 || next != "" || err != nil {
			t.Errorf("of nothing: %v, %q, %v", items, next, err)
		}
	})
}

// TestRedrive: a dead notification is due at once with no attempts counted; no other row changes.
func TestRedrive(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		dead := db.WriteNotification(t, d.ID, nil)
		n, err := db.Redrive(t.Context(), dead.ID)
		if err != nil || n.Status != outbox.Pending || n.Attempts != 0 || n.NextAt == nil || time.Until(*n.NextAt) > time.Second {
			t.Errorf("%+v, %v", n, err)
		}
		if ids, err := db.As("me").DueNotifications(db.Work.With(t.Context()), 10); !slices.Equal(ids, []dispatch.NotificationID{dead.ID}) || err != nil {
			t.Errorf("due: %v, %v", ids, err)
		}
		for what, edit := range map[string]func(*pushes.NotificationRow){
			"pending": func(r *pushes.NotificationRow) { r.State = pushes.StatePending },
			"sent":    func(r *pushes.NotificationRow) { r.State = pushes.StateDone },
			"dropped": func(r *pushes.NotificationRow) { r.State = pushes.StateDropped },
			"over": func(r *pushes.NotificationRow) {
				r.Type, r.ExpiresAt = dispatch.EventTaken, database.Micros(time.Now().Add(-time.Second))
			},
			"another": func(r *pushes.NotificationRow) { r.Round = 2 },
		} {
			row := db.WriteNotification(t, d.ID, edit)
			before := db.Stored(t, row.ID)
			if _, err := db.Redrive(t.Context(), row.ID); !errors.Is(err, dispatch.ErrNotDead) || errors.Is(err, dispatch.ErrUnavailable) || strings.Contains(err.Error(), "SQL") {
				t.Errorf("%s: %v", what, err)
			}
			if after := db.Stored(t, row.ID); !reflect.DeepEqual(before, after) {
				t.Errorf("%s: %+v became %+v", what, before, after)
			}
		}
		MustBeError(t, "unknown", ErrorOf(db.Redrive(t.Context(), dispatch.NewNotificationID(time.Now()))), dispatch.ErrNotificationNotFound)
	})
}

// An offer that died before its dispatch was extended can be sent again, until the new end.
func TestRedriveAfterAnExtension(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		dead := db.WriteNotification(t, d.ID, func(r *pushes.NotificationRow) { r.ExpiresAt = database.Micros(d.ExpiresAt) })
		d = db.MustUpdate(t, d.ID, Extended(1))
		db.Exec(t, "UPDATE notifications SET expires_at = ?", database.Micros(time.Now().Add(-time.Second))) // the old end is over
		n, err := db.Redrive(t.Context(), dead.ID)
		if err != nil || n.Status != outbox.Pending || !n.UsefulUntil.Equal(d.ExpiresAt) {
			t.Errorf("%+v, %v; the dispatch ends at %s", n, err, d.ExpiresAt)
		}
	})
}

func TestConcurrentRedrives(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		d := db.Add(t, nil)
		for range 5 {
			id := db.WriteNotification(t, d.ID, nil).ID
			MustWinOnce(t, 16, dispatch.ErrNotDead, func(int) error { return ErrorOf(db.Redrive(t.Context(), id)) })
		}
	})
}
