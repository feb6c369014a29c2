package repository

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/outbox"
	"firsttap/testkit"
)

// Values that name a person. They are in no table after an erasure.
const (
	personName                            = "Kim Min-jun of the tests"
	personPhone                           = "+821055556666"
	personUID                             = "uid-of-kim"
	personPhone2, personName2, personUID2 = "+821077778888", "Lee Seo-yeon of the tests", "uid-of-lee"
	personToken, personInstallation       = "push-token-of-kim", "installation-of-kim"
	removedToken                          = "removed-token-of-kim"
)

// person is a driver with data everywhere: an earlier name and phone in the audit, a device, a subscription, a job that is over.
func (db *database) person(t *testing.T) dispatch.Driver {
	t.Helper()
	v := db.addDriver(t, func(v *dispatch.Driver) { v.Name, v.Phone, v.FirebaseUID = personName2, personPhone2, personUID2 })
	_, err := db.ChangeDriver(t.Context(), v.ID, dispatch.DriverChange{Action: dispatch.AuditDriverUpdate, Apply: func(v *dispatch.Driver, _ time.Time) error {
		v.Name, v.Phone, v.FirebaseUID = personName, personPhone, personUID
		return nil
	}})
	must(t, err)
	me := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: string(v.ID)})
	phone := someDevice(v.ID, personInstallation, personToken)
	put, err := db.PutDevice(me, phone)
	must(t, err)
	for i := range 3 { // in one coalesced entry
		phone.Installation = fmt.Sprint(personInstallation, " ", i)
		phone.PushToken = fmt.Sprint(personToken, i)
		must(t, errorOf(db.PutDevice(me, phone)))
	}
	db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES ('dispatch-dsp_x', 0, 1, 0, '')")
	db.exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) VALUES ('dispatch-dsp_x', ?, ?, 1), ('dispatch-dsp_x', 'dev_other', 'other', 1)",
		put.ID, personToken)
	d := db.add(t, nil)
	// A phone that was removed may still be subscribed.
	phone.Installation, phone.PushToken = "removed", removedToken
	removed, err := db.PutDevice(t.Context(), phone)
	must(t, err)
	db.notification(t, d.ID, func(row *notificationRow) { row.DeviceID, row.DriverID = removed.ID, v.ID })
	topic := outbox.TopicOf(d.ID)
	db.exec(t, "INSERT INTO topics (name, ended, state, next_at, claim) VALUES (?, 0, 1, 0, '')", topic)
	db.exec(t, "INSERT INTO topic_members (topic, device_id, push_token, subscribed) VALUES (?, ?, ?, 1)", topic, removed.ID, removedToken)
	must(t, db.DeleteDevice(t.Context(), v.ID, phone.Installation))
	must(t, db.MarkSeen(t.Context(), d.ID, 1, v.ID))
	db.mustAccept(t, d.ID, v.ID)
	must(t, db.AddAttempts(t.Context(), []dispatch.Attempt{{ID: dispatch.NewAttemptID(d.CreatedAt), Dispatch: d.ID, Round: 1, Driver: v.ID, Result: "SUCCESS", At: d.CreatedAt}}))
	db.mustUpdate(t, d.ID, cancel)
	must(t, errorOfPage(db.SetDuty(me, v.ID, false)))
	must(t, errorOfPage(db.SetDuty(me, v.ID, true)))
	return v
}

func (db *database) mustErase(t testing.TB, id dispatch.DriverID) (dispatch.DriverRecord, dispatch.Revocation) {
	t.Helper()
	v, r, err := db.EraseDriver(t.Context(), id)
	must(t, err)
	return v, r
}

// tables returns the names of all tables.
func (db *database) tables(t *testing.T) (all []string) {
	t.Helper()
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
	if db.dialect.text.sqlite {
		query = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	db.texts(t, query, func(_, table string) { all = append(all, table) })
	return all
}

// cells returns every value of every table, as text, by table and column.
func (db *database) cells(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range db.tables(t) {
		db.texts(t, "SELECT * FROM "+table, func(column, text string) {
			all[table+"."+column] = append(all[table+"."+column], text)
		})
	}
	return all
}

// texts calls fn with each value that the query finds.
func (db *database) texts(t *testing.T, query string, fn func(column, text string)) {
	t.Helper()
	rows, err := db.raw.QueryContext(t.Context(), query)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		must(t, rows.Scan(into...))
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			fn(columns[i], fmt.Sprint(v))
		}
	}
	must(t, rows.Err())
}

// found returns where one of the texts is in the database.
func (db *database) found(t *testing.T, texts ...string) (where []string) {
	t.Helper()
	for column, values := range db.cells(t) {
		for _, v := range values {
			for _, text := range texts {
				if strings.Contains(v, text) {
					where = append(where, column+": "+v)
				}
			}
		}
	}
	return where
}

// After an erasure no table has a value that names the driver, and the history is what it was, under the driver's identifier.
func TestErasedDriverIsInNoTable(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.person(t)
		personal := []string{
			personName, personPhone, personUID, personName2, personPhone2, personUID2, personToken, personInstallation, removedToken,
		}
		audited := func(column string) bool { return strings.HasPrefix(column, "audit.") }
		if where := db.found(t, personal...); len(where) < len(personal) || slices.ContainsFunc(where, audited) {
			t.Fatalf("they are in %q", where)
		}
		about := func() (n []int) {
			for _, from := range []string{"claims", "events", "offers", "taps", "audit", "dispatches"} {
				n = append(n, db.count(t, from))
			}
			return n
		}
		before := about()
		got, revoked := db.mustErase(t, v.ID)
		before[4]++ // the erasure's own entry
		testkit.Equal(t, "the rows of history", before, about())
		if where := db.found(t, personal...); len(where) > 0 {
			t.Errorf("an erased driver is still in\n%s", strings.Join(where, "\n"))
		}
		record, err := db.DriverRecord(t.Context(), v.ID)
		must(t, err)
		testkit.Equal(t, "the driver", record, got)
		want := dispatch.DriverRecord{CreatedAt: record.CreatedAt, UpdatedAt: record.UpdatedAt, ErasedAt: &record.UpdatedAt}
		want.Driver = dispatch.Driver{ID: v.ID, Name: dispatch.Pseudonym(v.ID), Regions: []string{}, Version: record.Version}
		testkit.Equal(t, "the driver", want, record)
		all, err := db.Revocations(t.Context())
		must(t, err)
		testkit.Equal(t, "the revocations", []dispatch.Revocation{revoked}, all)
		entry := db.lastAudit(t, dispatch.AuditDriverErase)
		if entry.Target != string(v.ID) || entry.Detail != `{"devices":4}` {
			t.Errorf("audited as %+v", entry)
		}
		if duty := db.lastAudit(t, dispatch.AuditDuty); !strings.Contains(duty.Detail, `"on_duty":{"from":true,"to":false}`) {
			t.Errorf("the history of duty is gone: %s", duty.Detail)
		}
		db.mustCount(t, 1, "topic_members WHERE device_id = 'dev_other'")

		db.mustCount(t, 0, "driver_regions")
		db.mustCount(t, 0, "driver_counts")
		db.mustBeIndexed(t)

		cells := db.cells(t)
		again, r := db.mustErase(t, v.ID)
		testkit.Equal(t, "the driver, erased again", record, again)
		testkit.Equal(t, "the revocation, erased again", revoked, r)
		testkit.Equal(t, "the database after a repeated erasure", cells, db.cells(t))
	})
}

// Nothing can be done with an erased driver, and a new one may have the same uid.
func TestErasedDriverTakesNoPart(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		ctx, v := t.Context(), db.person(t)
		open := db.add(t, nil)
		db.mustErase(t, v.ID)
		must(t, errorOf(db.DriverRecord(ctx, v.ID)))
		rename := edit(func(v *dispatch.Driver) { v.Name = personName })
		for what, c := range map[string]struct{ got, want error }{
			"the driver":      {errorOf(db.Driver(ctx, v.ID)), dispatch.ErrDriverNotFound},
			"duty":            {errorOfPage(db.SetDuty(ctx, v.ID, true)), dispatch.ErrDriverNotFound},
			"a device":        {errorOf(db.PutDevice(ctx, someDevice(v.ID, "x", "y"))), dispatch.ErrDriverNotFound},
			"the uid":         {errorOf(db.DriverByFirebaseUID(ctx, personUID)), dispatch.ErrDriverNotFound},
			"a token":         {errorOf(db.RecordTokenIssued(ctx, v.ID)), dispatch.ErrDriverErased},
			"a change":        {errorOf(db.ChangeDriver(ctx, v.ID, rename)), dispatch.ErrDriverErased},
			"a claim":         {errorOf(db.accept(ctx, open.ID, v.ID)), dispatch.ErrNotEligible},
			"an assignment":   {errorOf(db.assign(ctx, open.ID, open.Version, v.ID)), dispatch.ErrNotEligible},
			"the signals":     {errorOf(db.TapStatistics(ctx, v.ID)), nil},
			"the revocations": {errorOf(db.RevokeTokens(ctx, v.ID)), nil},
		} {
			mustBeError(t, what, c.got, c.want)
		}
		for erased, want := range map[bool]int{false: 0, true: 1} {
			items, _, err := db.Drivers(ctx, dispatch.DriverQuery{Erased: erased, Page: dispatch.Page{Limit: 10}})
			must(t, err)
			if len(items) != want {
				t.Errorf("erased %t: %d drivers, want %d", erased, len(items), want)
			}
		}
		if p, _, err := db.Preview(ctx, someTerms(time.Now())); p.Eligible+p.NotEligible > 0 || err != nil {
			t.Errorf("the preview is %+v, %v", p, err)
		}
		fresh := db.addDriver(t, func(v *dispatch.Driver) { v.FirebaseUID = personUID })
		if got, err := db.DriverByFirebaseUID(ctx, personUID); got != fresh.ID || err != nil {
			t.Errorf("the new driver of the uid: %s, %v", got, err)
		}
		_, _, err := db.EraseDriver(ctx, dispatch.NewDriverID(time.Now()))
		mustBeError(t, "an unknown driver", err, dispatch.ErrDriverNotFound)
	})
}

// A driver who has a job is not erased: accepted or begun, and not any more once it is over.
func TestEraseOfABusyDriver(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v, d := db.drivers(t, 1)[0], db.add(t, nil)
		db.mustAccept(t, d.ID, v.ID)
		for _, status := range []dispatch.Status{dispatch.Accepted, dispatch.InProgress} {
			db.exec(t, "UPDATE dispatches SET status = ?", status)
			_, _, err := db.EraseDriver(t.Context(), v.ID)
			mustBeError(t, string(status), err, dispatch.ErrDriverHasJob)
		}
		record, err := db.DriverRecord(t.Context(), v.ID)
		must(t, err)
		testkit.Equal(t, "the driver", v, record.Driver)
		db.exec(t, "UPDATE dispatches SET status = 'COMPLETED'")
		db.mustErase(t, v.ID)
	})
}

// Of a claim and an erasure at once one comes first: the driver has the job and is not erased, or is erased and not eligible.
func TestEraseAndClaimAtOnce(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		for i := range testkit.Scale(5, 30) {
			v, d := db.drivers(t, 1)[0], db.add(t, later(i))
			mustBeError(t, "elsewhere", errorOf(db.accept(t.Context(), db.add(t, func(d *dispatch.Dispatch) { d.Region = "elsewhere" }).ID, v.ID)), dispatch.ErrNotEligible)
			var claimed, erased, dutied, put error
			testkit.Together(4, func(n int) {
				switch n {
				case 0:
					_, claimed = db.accept(t.Context(), d.ID, v.ID)
				case 1:
					_, _, erased = db.EraseDriver(t.Context(), v.ID)
				case 2:
					_, _, dutied = db.SetDuty(t.Context(), v.ID, true)
				case 3:
					_, put = db.PutDevice(t.Context(), someDevice(v.ID, "phone", string(v.ID)))
				}
			})
			if claimed == nil {
				mustBeError(t, "an erasure after the claim", erased, dispatch.ErrDriverHasJob)
				must(t, errorOf(db.Driver(t.Context(), v.ID)))
				continue
			}
			must(t, erased)
			mustBeError(t, "a claim after the erasure", claimed, dispatch.ErrNotEligible)
			for _, err := range []error{dutied, put} {
				if err != nil {
					mustBeError(t, "duty or a device after the erasure", err, dispatch.ErrDriverNotFound)
				}
			}
			db.mustCount(t, 0, "drivers WHERE id = ? AND (on_duty OR name <> ?)", v.ID, dispatch.Pseudonym(v.ID))
			db.mustCount(t, 0, "devices WHERE driver_id = ?", v.ID)
		}
	})
}

// A claim that was decided before the erasure and is written after it fails, and is refused when it is decided again.
func TestEraseBetweenDecisionAndClaim(t *testing.T) {
	every(t, func(t *testing.T, db *database) {
		v, d := db.drivers(t, 1)[0], db.add(t, nil)
		decided, asked := meanwhile(rule(1), func() { db.mustErase(t, v.ID) })
		_, err := db.Claim(t.Context(), d.ID, v.ID, decided)
		mustBeError(t, "the claim", err, dispatch.ErrNotEligible)
		if db.mustCount(t, 0, "claims"); *asked < 2 {
			t.Errorf("decided %d times", *asked)
		}
	})
}
