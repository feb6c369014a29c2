package drivers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

func mustErase(db *Bench, t testing.TB, id dispatch.DriverID) (dispatch.DriverRecord, dispatch.Revocation) {
	t.Helper()
	v, r, err := db.EraseDriver(t.Context(), id)
	Must(t, err)
	return v, r
}

// found returns where one of the texts is in the database.
func found(db *Bench, t *testing.T, texts ...string) (where []string) {
	t.Helper()
	for column, values := range db.Cells(t) {
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
	Each(t, func(t *testing.T, db *Bench) {
		v := db.Person(t)
		personal := []string{
			PersonName, PersonPhone, PersonUID, PersonName2, PersonPhone2, PersonUID2, PersonToken, PersonInstallation, RemovedToken,
		}
		audited := func(column string) bool { return strings.HasPrefix(column, "audit.") }
		if where := found(db, t, personal...); len(where) < len(personal) || slices.ContainsFunc(where, audited) {
			t.Fatalf("they are in %q", where)
		}
		about := func() (n []int) {
			for _, from := range []string{"claims", "events", "offers", "taps", "audit", "dispatches"} {
				n = append(n, db.Count(t, from))
			}
			return n
		}
		before := about()
		// A word that today's names and numbers have no more goes, too.
		db.Exec(t, "INSERT INTO driver_words (word, driver_id) VALUES (?, ?)", PersonPhone2, v.ID)
		got, revoked := mustErase(db, t, v.ID)
		before[4]++ // the erasure's own entry
		testkit.Equal(t, "the rows of history", before, about())
		if where := found(db, t, personal...); len(where) > 0 {
			t.Errorf("an erased driver is still in\n%s", strings.Join(where, "\n"))
		}
		record, err := db.DriverRecord(t.Context(), v.ID)
		Must(t, err)
		testkit.Equal(t, "the driver", record, got)
		want := dispatch.DriverRecord{CreatedAt: record.CreatedAt, UpdatedAt: record.UpdatedAt, ErasedAt: &record.UpdatedAt}
		want.Driver = dispatch.Driver{ID: v.ID, Name: dispatch.Pseudonym(v.ID), Regions: []string{}, Version: record.Version}
		testkit.Equal(t, "the driver", want, record)
		all, err := db.Revocations(t.Context())
		Must(t, err)
		testkit.Equal(t, "the revocations", []dispatch.Revocation{revoked}, all)
		entry := db.LastAudit(t, dispatch.AuditDriverErase)
		if entry.Target != string(v.ID) || entry.Detail != `{"devices":4}` {
			t.Errorf("audited as %+v", entry)
		}
		if duty := db.LastAudit(t, dispatch.AuditDuty); !strings.Contains(duty.Detail, `"on_duty":{"from":true,"to":false}`) {
			t.Errorf("the history of duty is gone: %s", duty.Detail)
		}
		db.MustCount(t, 1, "topic_members WHERE device_id = 'dev_other'")

		db.MustCount(t, 0, "driver_regions")
		db.MustCount(t, 0, "driver_counts")
		mustBeIndexed(db, t)

		cells := db.Cells(t)
		again, r := mustErase(db, t, v.ID)
		testkit.Equal(t, "the driver, erased again", record, again)
		testkit.Equal(t, "the revocation, erased again", revoked, r)
		testkit.Equal(t, "the database after a repeated erasure", cells, db.Cells(t))
	})
}

// Nothing can be done with an erased driver, and a new one may have the same uid.
func TestErasedDriverTakesNoPart(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		ctx, v := t.Context(), db.Person(t)
		open := db.Add(t, nil)
		mustErase(db, t, v.ID)
		Must(t, ErrorOf(db.DriverRecord(ctx, v.ID)))
		rename := Edit(func(v *dispatch.Driver) { v.Name = PersonName })
		for what, c := range map[string]struct{ got, want error }{
			"the driver":      {ErrorOf(db.Driver(ctx, v.ID)), dispatch.ErrDriverNotFound},
			"duty":            {ErrorOfPage(db.SetDuty(ctx, v.ID, true)), dispatch.ErrDriverNotFound},
			"a device":        {ErrorOf(db.PutDevice(ctx, SomeDevice(v.ID, "x", "y"))), dispatch.ErrDriverNotFound},
			"the uid":         {ErrorOf(db.DriverByFirebaseUID(ctx, PersonUID)), dispatch.ErrDriverNotFound},
			"a token":         {ErrorOf(db.RecordTokenIssued(ctx, v.ID)), dispatch.ErrDriverErased},
			"a change":        {ErrorOf(db.ChangeDriver(ctx, v.ID, rename)), dispatch.ErrDriverErased},
			"a claim":         {ErrorOf(db.Accept(ctx, open.ID, v.ID)), dispatch.ErrNotEligible},
			"an assignment":   {ErrorOf(db.AssignAt(ctx, open.ID, open.Version, v.ID)), dispatch.ErrNotEligible},
			"the signals":     {ErrorOf(db.TapStatistics(ctx, v.ID)), nil},
			"the revocations": {ErrorOf(db.RevokeTokens(ctx, v.ID)), nil},
		} {
			MustBeError(t, what, c.got, c.want)
		}
		for erased, want := range map[bool]int{false: 0, true: 1} {
			items, _, err := db.Drivers.Drivers(ctx, dispatch.DriverQuery{Erased: erased, Page: dispatch.Page{Limit: 10}})
			Must(t, err)
			if len(items) != want {
				t.Errorf("erased %t: %d drivers, want %d", erased, len(items), want)
			}
		}
		if p, _, err := db.Preview(ctx, SomeTerms(time.Now())); p.Eligible+p.NotEligible > 0 || err != nil {
			t.Errorf("the preview is %+v, %v", p, err)
		}
		fresh := db.AddDriver(t, func(v *dispatch.Driver) { v.FirebaseUID = PersonUID })
		if got, err := db.DriverByFirebaseUID(ctx, PersonUID); got != fresh.ID || err != nil {
			t.Errorf("the new driver of the uid: %s, %v", got, err)
		}
		_, _, err := db.EraseDriver(ctx, dispatch.NewDriverID(time.Now()))
		MustBeError(t, "an unknown driver", err, dispatch.ErrDriverNotFound)
	})
}

// A driver who has a job is not erased: accepted or begun, and not any more once it is over.
func TestEraseOfABusyDriver(t *testing.T) {
	Each(t, func(t *testing.T, db *Bench) {
		v, d := db.Fleet(t, 1)[0], db.Add(t, nil)
		db.MustAccept(t, d.ID, v.ID)
		for _, status := range []dispatch.Status{dispatch.Accepted, dispatch.InProgress} {
			db.Exec(t, "UPDATE dispatches SET status = ?", status)
			_, _, err := db.EraseDriver(t.Context(), v.ID)
			MustBeError(t, string(status), err, dispatch.ErrDriverHasJob)
		}
		record, err := db.DriverRecord(t.Context(), v.ID)
		Must(t, err)
		testkit.Equal(t, "the driver", v, record.Driver)
		db.Exec(t, "UPDATE dispatches SET status = 'COMPLETED'")
		mustErase(db, t, v.ID)
	})
}

// Of a claim and an erasure at once one comes first: the driver has the job and is not erased, or is erased and not eligible.
func TestEraseAndClaimAtOnce(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		for i := range testkit.Scale(5, 30) {
			v, d := db.Fleet(t, 1)[0], db.Add(t, Later(i))
			MustBeError(t, "elsewhere", ErrorOf(db.Accept(t.Context(), db.Add(t, func(d *dispatch.Dispatch) { d.Region = "elsewhere" }).ID, v.ID)), dispatch.ErrNotEligible)
			var claimed, erased, dutied, put error
			testkit.Together(4, func(n int) {
				switch n {
				case 0:
					_, claimed = db.Accept(t.Context(), d.ID, v.ID)
				case 1:
					_, _, erased = db.EraseDriver(t.Context(), v.ID)
				case 2:
					_, _, dutied = db.SetDuty(t.Context(), v.ID, true)
				case 3:
					_, put = db.PutDevice(t.Context(), SomeDevice(v.ID, "phone", string(v.ID)))
				}
			})
			if claimed == nil {
				MustBeError(t, "an erasure after the claim", erased, dispatch.ErrDriverHasJob)
				Must(t, ErrorOf(db.Driver(t.Context(), v.ID)))
				continue
			}
			Must(t, erased)
			MustBeError(t, "a claim after the erasure", claimed, dispatch.ErrNotEligible)
			for _, err := range []error{dutied, put} {
				if err != nil {
					MustBeError(t, "duty or a device after the erasure", err, dispatch.ErrDriverNotFound)
				}
			}
			db.MustCount(t, 0, "drivers WHERE id = ? AND (on_duty OR name <> ?)", v.ID, dispatch.Pseudonym(v.ID))
			db.MustCount(t, 0, "devices WHERE driver_id = ?", v.ID)
		}
	})
}

// A claim that was decided before the erasure and is written after it fails, and is refused when it is decided again.
func TestEraseBetweenDecisionAndClaim(t *testing.T) {
	Every(t, func(t *testing.T, db *Bench) {
		v, d := db.Fleet(t, 1)[0], db.Add(t, nil)
		decided, asked := Meanwhile(Rule(1), func() { mustErase(db, t, v.ID) })
		_, err := db.Claim(t.Context(), d.ID, v.ID, decided)
		MustBeError(t, "the claim", err, dispatch.ErrNotEligible)
		if db.MustCount(t, 0, "claims"); *asked < 2 {
			t.Errorf("decided %d times", *asked)
		}
	})
}
