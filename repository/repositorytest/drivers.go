package repositorytest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/repository/database"
	"firsttap/repository/drivers"
	"firsttap/repository/pushes"
)

// IndexDrivers indexes drivers that a test has written by SQL.
func (db *Bench) IndexDrivers(t testing.TB) {
	t.Helper()
	var rows []drivers.Row
	Must(t, db.Serve.With(t.Context()).Order("id").Find(&rows).Error)
	for part := range slices.Chunk(rows, 100) {
		Must(t, db.Decide.TransactOnce(t.Context(), func(tx database.Tx) error {
			return drivers.Index(tx, nil, part)
		}))
	}
}

// Edit is a change of a driver by an admin.
func Edit(apply func(*dispatch.Driver)) dispatch.DriverChange {
	return dispatch.DriverChange{
		Action: dispatch.AuditDriverUpdate, Detail: map[string]any{"why": "asked"},
		Apply: func(v *dispatch.Driver, _ time.Time) error { apply(v); return nil },
	}
}

// Values that name a person. They are in no table after an erasure.
const (
	PersonName         = "Kim Min-jun of the tests"
	PersonPhone        = "+821055556666"
	PersonUID          = "uid-of-kim"
	PersonPhone2       = "+821077778888"
	PersonName2        = "Lee Seo-yeon of the tests"
	PersonUID2         = "uid-of-lee"
	PersonToken        = "push-token-of-kim"
	PersonInstallation = "installation-of-kim"
	RemovedToken       = "removed-token-of-kim"
)

// Person is a driver with data everywhere: an earlier name and phone in the audit, a device, a subscription, a job that is over.
func (db *Bench) Person(t *testing.T) dispatch.Driver {
	t.Helper()
	v := db.AddDriver(t, func(v *dispatch.Driver) { v.Name, v.Phone, v.FirebaseUID = PersonName2, PersonPhone2, PersonUID2 })
	_, err := db.ChangeDriver(
		t.Context(),
		v.ID,
		dispatch.DriverChange{Action: dispatch.AuditDriverUpdate, Apply: func(v *dispatch.Driver, _ time.Time) error {
			v.Name, v.Phone, v.FirebaseUID = PersonName, PersonPhone, PersonUID
			return nil
		}},
	)
	Must(t, err)
	me := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: string(v.ID)})
	phone := SomeDevice(v.ID, PersonInstallation, PersonToken)
	put, err := db.PutDevice(me, phone)
	Must(t, err)
	for i := range 3 { // in one coalesced entry
		phone.Installation = fmt.Sprint(PersonInstallation, " ", i)
		phone.PushToken = fmt.Sprint(PersonToken, i)
		Must(t, ErrorOf(db.PutDevice(me, phone)))
	}
	db.Exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES ('dispatch-dsp_x', 0, 1, 0, '')")
	db.Exec(
		t,
		"INSERT INTO topic_members (topic, device_id, push_token, subscribed) "+
			"VALUES ('dispatch-dsp_x', ?, ?, 1), ('dispatch-dsp_x', 'dev_other', 'other', 1)",
		put.ID, PersonToken,
	)
	d := db.Add(t, nil)
	// A phone that was removed may still be subscribed.
	phone.Installation, phone.PushToken = "removed", RemovedToken
	removed, err := db.PutDevice(t.Context(), phone)
	Must(t, err)
	db.WriteNotification(t, d.ID, func(row *pushes.NotificationRow) { row.DeviceID, row.DriverID = removed.ID, v.ID })
	topic := outbox.TopicOf(d.ID)
	db.Exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES (?, 0, 1, 0, '')", topic)
	db.Exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) VALUES (?, ?, ?, 1)", topic, removed.ID, RemovedToken)
	Must(t, db.DeleteDevice(t.Context(), v.ID, phone.Installation))
	Must(t, db.MarkSeen(t.Context(), d.ID, 1, v.ID))
	db.MustAccept(t, d.ID, v.ID)
	attempt := dispatch.Attempt{ID: dispatch.NewAttemptID(d.CreatedAt), Dispatch: d.ID, Round: 1, Driver: v.ID, At: d.CreatedAt}
	attempt.Result = "SUCCESS"
	Must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{attempt}))
	db.MustUpdate(t, d.ID, Cancel)
	Must(t, ErrorOfPage(db.SetDuty(me, v.ID, false)))
	Must(t, ErrorOfPage(db.SetDuty(me, v.ID, true)))
	return v
}

// Tables returns the names of all tables.
func (db *Bench) Tables(t *testing.T) (all []string) {
	t.Helper()
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
	if db.SQLite() {
		query = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	db.Texts(t, query, func(_, table string) { all = append(all, table) })
	return all
}

// Cells returns every value of every table, as text, by table and column.
func (db *Bench) Cells(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range db.Tables(t) {
		db.Texts(t, "SELECT * FROM "+table, func(column, text string) {
			all[table+"."+column] = append(all[table+"."+column], text)
		})
	}
	return all
}

// Texts calls fn with each value that the query finds.
func (db *Bench) Texts(t *testing.T, query string, fn func(column, text string)) {
	t.Helper()
	rows, err := db.Raw.QueryContext(t.Context(), query)
	Must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	Must(t, err)
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		Must(t, rows.Scan(into...))
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			fn(columns[i], fmt.Sprint(v))
		}
	}
	Must(t, rows.Err())
}

// SomeDriver is the i-th driver of a fleet.
func SomeDriver(i int) dispatch.Driver {
	now := time.Now()
	return dispatch.Driver{
		ID: dispatch.NewDriverID(now), Name: fmt.Sprintf("Driver %d", i), Phone: fmt.Sprintf("+8210%08d", i),
		Regions: []string{"seoul", "busan"}, VehicleClass: "scissor", Locale: "ko", OnDuty: true, Version: 1,
	}
}

// Fleet adds n eligible drivers.
func (db *Bench) Fleet(t testing.TB, n int) []dispatch.Driver {
	t.Helper()
	drivers := make([]dispatch.Driver, n)
	for i := range drivers {
		drivers[i] = SomeDriver(i)
	}
	Must(t, db.AddDrivers(t.Context(), drivers, false))
	return drivers
}
