package repository

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// revocations returns the revocations by driver.
func (db *database) revocations(t *testing.T) map[dispatch.DriverID]dispatch.Revocation {
	t.Helper()
	all, err := db.Revocations(t.Context())
	must(t, err)
	by := map[dispatch.DriverID]dispatch.Revocation{}
	for _, r := range all {
		by[r.Driver] = r
	}
	return by
}

// TestRevokeTokens counts the generations up, writes the trail, and leaves the driver as they are; what is changed about the
// driver leaves the generation as it is.
func TestRevokeTokens(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		ctx := dispatch.WithCaller(t.Context(), dispatch.Caller{Actor: "key_7", Request: "req 1"})
		drivers := db.drivers(t, 2)
		v := []dispatch.DriverID{drivers[0].ID, drivers[1].ID}
		generation := func(of dispatch.DriverID) int {
			t.Helper()
			n, err := db.RecordTokenIssued(ctx, of)
			must(t, err)
			return n
		}
		if n := generation(v[0]); n != 0 {
			t.Errorf("the first token is of generation %d", n)
		}
		if len(db.revocations(t)) != 0 {
			t.Error("somebody's tokens are revoked")
		}
		before, err := db.DriverRecord(ctx, v[0])
		must(t, err)
		for want := 1; want <= 2; want++ {
			r, err := db.RevokeTokens(ctx, v[0])
			if err != nil || r.Driver != v[0] || r.Generation != want || !near(r.At, time.Now()) {
				t.Errorf("%+v, %v", r, err)
			}
			if got := db.revocations(t); len(got) != 1 || got[v[0]] != r {
				t.Errorf("%+v, want %+v", got, r)
			}
			if n := generation(v[0]); n != want {
				t.Errorf("a token of afterwards is of generation %d, want %d", n, want)
			}
		}
		if n := generation(v[1]); n != 0 {
			t.Errorf("the token of another driver has the generation %d", n)
		}
		if after, err := db.DriverRecord(ctx, v[0]); err != nil || after.Version != before.Version {
			t.Errorf("version %d, was %d, %v", after.Version, before.Version, err)
		}
		_, err = db.ChangeDriver(ctx, v[0], dispatch.DriverChange{
			Action: dispatch.AuditDriverSuspend,
			Apply:  func(v *dispatch.Driver, now time.Time) error { return v.Suspend(dispatch.Forever, now) },
		})
		if _, duty := db.SetDuty(ctx, v[0], false); err != nil || duty != nil {
			t.Fatal(err, duty)
		}
		if got := db.revocations(t)[v[0]]; got.Generation != 2 || got.At.IsZero() {
			t.Errorf("after a change of the driver: %+v", got)
		}
		_, err = db.RevokeTokens(ctx, dispatch.NewDriverID(time.Now()))
		mustBeError(t, "an unknown driver", err, dispatch.ErrDriverNotFound)

		entries, _, err := db.Audit(ctx, dispatch.AuditQuery{Target: string(v[0]), Page: dispatch.Page{Limit: 20}})
		must(t, err)
		entries = slices.DeleteFunc(entries, func(e dispatch.AuditEntry) bool { return e.Action != dispatch.AuditTokensRevoke })
		var detail struct{ Generation int }
		if len(entries) != 2 || entries[0].Actor != "key_7" || entries[0].Request != "req 1" ||
			json.Unmarshal([]byte(entries[0].Detail), &detail) != nil || detail.Generation != 2 {
			t.Errorf("%+v", entries)
		}
	})
}

// TestClockStepsBack: a revocation counts all the same, and is not of an earlier time than the one before.
func TestClockStepsBack(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		db.exec(t, "UPDATE drivers SET token_generation = 7, tokens_revoked_at = ? WHERE id = ?", ahead.UnixMicro(), v)
		if r, err := db.RevokeTokens(t.Context(), v); err != nil || r.Generation != 8 || !r.At.Equal(ahead) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestRevokedAtOnce: of many revocations at once each is a generation of its own.
func TestRevokedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const n = 10
		v := db.drivers(t, 1)[0].ID
		got, errs := make([]int, n), make([]error, n)
		testkit.Together(n, func(i int) {
			r, err := db.RevokeTokens(t.Context(), v)
			got[i], errs[i] = r.Generation, err
		})
		slices.Sort(got)
		if err := errors.Join(errs...); err != nil || slices.Compact(slices.Clone(got))[0] != 1 || len(slices.Compact(got)) != n {
			t.Errorf("%v, %v", got, err)
		}
		if r := db.revocations(t)[v]; r.Generation != n {
			t.Errorf("%+v, want generation %d", r, n)
		}
	})
}

// TestUpdateAs waits for a suspension that is being written, and sees it.
func TestUpdateAs(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		v := db.drivers(t, 1)[0].ID
		id := db.add(t, nil).ID
		tx := db.begun(t, fmt.Sprintf("UPDATE drivers SET suspended_until = %d WHERE id = '%s'", dispatch.Forever.UnixMicro(), v))
		suspended := false
		done := make(chan error, 1)
		go func() {
			err := dispatch.ErrUnavailable
			for errors.Is(err, dispatch.ErrUnavailable) { // where it has waited for as long as it may
				_, err = db.UpdateByDriver(t.Context(), id, v, func(_ *dispatch.Dispatch, v dispatch.Driver, now time.Time) ([]dispatch.Event, error) {
					suspended = v.Suspended(now)
					return nil, nil
				})
			}
			done <- err
		}()
		db.waiting(t)
		must(t, tx.Commit())
		if err := <-done; err != nil || !suspended {
			t.Errorf("the suspension was not seen, %v", err)
		}
		_, err := db.UpdateByDriver(t.Context(), id, dispatch.NewDriverID(time.Now()), nil)
		mustBeError(t, "an unknown driver", err, dispatch.ErrDriverNotFound)
	})
}
