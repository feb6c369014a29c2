package retention_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/idempotency"
	"firsttap/dispatch/webhook"
	"firsttap/repository/database"
	"firsttap/repository/pushes"
	. "firsttap/repository/repositorytest"
	"firsttap/repository/retention"
	"firsttap/repository/webhooks"
)

// personalNote is in a dispatch's note and address.
const personalNote = "ask for Kim at the gate"

// keptForEver are the tables that still have rows when everything is years old, with the columns that then name a person or a place.
var keptForEver = map[string][]string{
	"api_keys": nil, "audit": nil, "devices": {"installation_id", "push_token"}, "driver_counts": nil, "driver_regions": nil, "driver_words": {"word"},
	"drivers": {"firebase_uid", "name", "phone"}, "fences": nil, "jobs": nil, "shedlock": nil, "webhooks": nil,
	"webhook_events": nil,                                  // until the courier has written their deliveries
	"topics":         nil, "topic_members": {"push_token"}, // until the relay has unsubscribed them
}

// fillEveryTable has a row in each table, of everything that is about a person and ends.
func fillEveryTable(db *Bench, t *testing.T) {
	t.Helper()
	in := db.Courier(t, "ins_a")
	paused := db.AddEndpoint(t, "*", nil)
	gone := db.AddEndpoint(t, "*", nil)
	db.Person(t) // before the others: nobody else is offered the job
	d := in.Add(t, func(d *dispatch.Dispatch) { d.Note, d.Site.Address = personalNote, personalNote })
	v := db.Equipped(t, 2)
	Must(t, in.Decline(t.Context(), d.ID, 1, v[1].Driver, "FAR"))
	in.MustAccept(t, d.ID, v[0].Driver)
	in.MustUpdate(t, d.ID, Start)
	in.MustUpdate(t, d.ID, Complete)
	in.WriteAll(t)
	db.Exec(t, "UPDATE webhooks SET status = 'PAUSED' WHERE id = ?", paused)
	Must(t, db.DeleteWebhook(t.Context(), gone))
	for state := range 4 {
		db.WriteNotification(t, d.ID, func(row *pushes.NotificationRow) { row.State, row.DriverID = state, v[1].Driver })
	}
	for i, status := range []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed} {
		db.Exec(t, "UPDATE webhook_deliveries SET status = ? WHERE event_id = ?", status, in.EventsOf(t, d.ID)[i])
	}
	db.Write(t, []webhooks.EventRow{{DispatchID: d.ID, EventID: "evt_1"}})
	r := db.Reserve(t, idempotency.Request{Caller: "key_1", Name: "answered", Fingerprint: "f"})
	Must(t, db.SaveAnswer(t.Context(), r, []byte(PersonName), time.Hour))
	db.Reserve(t, idempotency.Request{Caller: "key_1", Name: "leased", Fingerprint: "f"})
	Must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{{
		ID: dispatch.NewAttemptID(db.Now(t)), Dispatch: "dsp_unknown", Driver: v[0].Driver, Result: "SUCCESS", At: db.Now(t),
	}}))
	Must(t, ErrorOf(db.AddKey(t.Context(), dispatch.Key{ID: "key_1", Name: "n", Role: dispatch.Viewer, Hash: "h"})))
	db.Known(t, Report)
	db.MustBegin(t, "a/1", SomeSlot(1))
	db.Exec(t, "UPDATE job_runs SET status = 'FAILED', error = ?", PersonName)
	db.Bar(t, dispatch.NewEventID(db.Now(t)))
	now := database.Micros(db.Now(t))
	db.Exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (?, 'seoul', 1, 1)", now)
	db.Exec(t, "INSERT INTO expansions (event_id, leg, start, position, large, due_at) VALUES (?, 0, ?, '', 0, 0)",
		dispatch.NewEventID(db.Now(t)), v[0].Driver)
	db.Exec(t, "INSERT INTO fences (name, fence) VALUES ('x', 1)")
	db.Exec(t, "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('x', '2026-01-01 00:00:00', '2026-01-01 00:00:00', 'x')")
}

// TestNothingPersonalOutlivesItsTime: three years later the retention leaves no table with rows but those that docs/security.md names, and
// no person in a column that this test does not name. A new table fails it until it has a row here, a rule, or a sentence there.
func TestNothingPersonalOutlivesItsTime(t *testing.T) {
	docs, err := os.ReadFile("../../docs/security.md")
	Must(t, err)
	_, personal, _ := strings.Cut(string(docs), "## Personal data")
	Each(t, func(t *testing.T, db *Bench) {
		fillEveryTable(db, t)
		rows := func() (filled, empty []string) {
			for _, table := range db.Tables(t) {
				switch {
				case strings.Contains(table, "goose"), strings.Contains(table, "migration"), strings.HasPrefix(table, "sqlite_"),
					strings.HasPrefix(table, "lock_"): // names of locks and migrations
				case db.Count(t, table) > 0:
					filled = append(filled, table)
				default:
					empty = append(empty, table)
				}
			}
			slices.Sort(filled)
			return filled, empty
		}
		if _, empty := rows(); len(empty) > 0 {
			t.Errorf("the test writes no row of %s", empty)
		}
		rowsOf := func(table string) (text string) {
			db.Texts(t, "SELECT * FROM "+table, func(column, value string) { text += column + "=" + value + " " })
			return text
		}
		later := db.Keeping(t, retention.Periods{Ended: 365 * Day, Attempts: 90 * Day})
		Must(t, ErrorOf(later.PruneAt(t.Context(), later.Now(t).Add(3*365*Day))))
		left, _ := rows()
		for _, table := range left {
			if _, kept := keptForEver[table]; !kept {
				t.Errorf("%s has %d rows after three years:\n%s", table, db.Count(t, table), rowsOf(table))
			}
			if !strings.Contains(personal, "`"+table+"`") {
				t.Errorf("docs/security.md does not say who is in %s", table)
			}
		}
		marks := []string{
			PersonName, PersonPhone, PersonUID, PersonName2, PersonPhone2, PersonUID2, PersonToken, PersonInstallation, RemovedToken, personalNote, "Kim",
		}
		for column, values := range db.Cells(t) {
			table, name, _ := strings.Cut(column, ".")
			text := strings.Join(values, "\n")
			marked := slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(text, mark) })
			if marked && !slices.Contains(keptForEver[table], name) {
				t.Errorf("after three years %s has %s", column, text)
			}
		}
	})
}
