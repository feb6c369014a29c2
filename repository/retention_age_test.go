package repository

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/idempotency"
	"firsttap/webhook"
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
func (db *database) fillEveryTable(t *testing.T) {
	t.Helper()
	in := db.courier(t, "ins_a")
	paused := db.endpoint(t, "*", nil)
	gone := db.endpoint(t, "*", nil)
	db.person(t) // before the others: nobody else is offered the job
	d := in.add(t, func(d *dispatch.Dispatch) { d.Note, d.Site.Address = personalNote, personalNote })
	v := db.equipped(t, 2)
	must(t, in.Decline(t.Context(), d.ID, 1, v[1].Driver, "FAR"))
	in.mustAccept(t, d.ID, v[0].Driver)
	in.mustUpdate(t, d.ID, start)
	in.mustUpdate(t, d.ID, complete)
	in.fanOut(t)
	db.exec(t, "UPDATE webhooks SET status = 'PAUSED' WHERE id = ?", paused)
	must(t, db.DeleteWebhook(t.Context(), gone))
	for state := range 4 {
		db.notification(t, d.ID, func(row *notificationRow) { row.State, row.DriverID = state, v[1].Driver })
	}
	for i, status := range []webhook.DeliveryStatus{webhook.Delivered, webhook.Failed} {
		db.exec(t, "UPDATE webhook_deliveries SET status = ? WHERE event_id = ?", status, in.eventsOf(t, d.ID)[i])
	}
	db.write(t, []webhookEventRow{{d.ID, "evt_1"}})
	r := db.reserve(t, idempotency.Request{Caller: "key_1", Name: "answered", Fingerprint: "f"})
	must(t, db.SaveAnswer(t.Context(), r, []byte(personName), time.Hour))
	db.reserve(t, idempotency.Request{Caller: "key_1", Name: "leased", Fingerprint: "f"})
	must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{{
		ID: dispatch.NewAttemptID(db.now(t)), Dispatch: "dsp_unknown", Driver: v[0].Driver, Result: "SUCCESS", At: db.now(t),
	}}))
	must(t, errorOf(db.AddKey(t.Context(), dispatch.Key{ID: "key_1", Name: "n", Role: dispatch.Viewer, Hash: "h"})))
	db.known(t, report)
	db.mustBegin(t, "a/1", someSlot(1))
	db.exec(t, "UPDATE job_runs SET status = 'FAILED', error = ?", personName)
	db.bar(t, dispatch.NewEventID(db.now(t)))
	now := micros(db.now(t))
	db.exec(t, "INSERT INTO supply (at, region, on_duty, open) VALUES (?, 'seoul', 1, 1)", now)
	db.exec(t, "INSERT INTO expansions (event_id, delivery, leg, start, position, large, due_at) VALUES (?, 0, 0, ?, '', 0, 0)",
		dispatch.NewEventID(db.now(t)), v[0].Driver)
	db.exec(t, "INSERT INTO fences (name, fence) VALUES ('x', 1)")
	db.exec(t, "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('x', '2026-01-01 00:00:00', '2026-01-01 00:00:00', 'x')")
}

// TestNothingPersonalOutlivesItsTime: three years later the retention leaves no table with rows but those that docs/security.md names, and
// no person in a column that this test does not name. A new table fails it until it has a row here, a rule, or a sentence there.
func TestNothingPersonalOutlivesItsTime(t *testing.T) {
	docs, err := os.ReadFile("../docs/security.md")
	must(t, err)
	_, personal, _ := strings.Cut(string(docs), "## Personal data")
	each(t, func(t *testing.T, db *database) {
		db.fillEveryTable(t)
		rows := func() (filled, empty []string) {
			for _, table := range db.tables(t) {
				switch {
				case strings.Contains(table, "goose"), strings.Contains(table, "migration"), strings.HasPrefix(table, "sqlite_"),
					strings.HasPrefix(table, "lock_"): // names of locks and migrations
				case db.count(t, table) > 0:
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
			db.texts(t, "SELECT * FROM "+table, func(column, value string) { text += column + "=" + value + " " })
			return text
		}
		later := db.keeping(t, Retention{Ended: 365 * day, Attempts: 90 * day})
		now := later.dialect.text.now
		later.dialect.text.now = func() string { return fmt.Sprintf("(%s + %d)", now(), (3 * 365 * day).Microseconds()) }
		must(t, errorOf(later.Prune(t.Context())))
		left, _ := rows()
		for _, table := range left {
			if _, kept := keptForEver[table]; !kept {
				t.Errorf("%s has %d rows after three years:\n%s", table, db.count(t, table), rowsOf(table))
			}
			if !strings.Contains(personal, "`"+table+"`") {
				t.Errorf("docs/security.md does not say who is in %s", table)
			}
		}
		marks := []string{
			personName, personPhone, personUID, personName2, personPhone2, personUID2, personToken, personInstallation, removedToken, personalNote, "Kim",
		}
		for column, values := range db.cells(t) {
			table, name, _ := strings.Cut(column, ".")
			text := strings.Join(values, "\n")
			marked := slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(text, mark) })
			if marked && !slices.Contains(keptForEver[table], name) {
				t.Errorf("after three years %s has %s", column, text)
			}
		}
	})
}
