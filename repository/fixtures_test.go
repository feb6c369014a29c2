package repository

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// begin does it in a goroutine. The channel has its error once it has ended.
func begin(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return ended
}

// mustStore fails the test unless the dispatch is stored as want says.
func (db *database) mustStore(t testing.TB, want dispatch.Dispatch) {
	t.Helper()
	if got := db.mustRead(t, want.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("the dispatch is stored as\n%+v, want\n%+v", got, want)
	}
}

// mustOutcome fails the test unless the driver's newest claim of the dispatch has that outcome. A claim that is not won any more
// ended with the dispatch's last change.
func (db *database) mustOutcome(t testing.TB, d dispatch.Dispatch, v dispatch.DriverID, want dispatch.Outcome) {
	t.Helper()
	past, err := db.NewestClaim(t.Context(), d.ID, v)
	must(t, err)
	if past == nil {
		t.Fatalf("the driver has no claim, want %s", want)
	}
	claim := dispatch.PastClaim{Claim: past.Claim, Outcome: want}
	if d.HeldBy(v) {
		claim.Claim = *d.Claim
	}
	if want != dispatch.OutcomeWon {
		claim.EndedAt = &d.UpdatedAt
	}
	testkit.Equal(t, "the claim", claim, *past)
}

// soon is a dispatch that is not open yet.
func soon(d *dispatch.Dispatch) {
	d.OpensAt = d.CreatedAt.Add(time.Hour)
	d.ExpiresAt = d.OpensAt.Add(time.Hour)
}

// over is a dispatch whose window has passed.
func over(d *dispatch.Dispatch) { d.ExpiresAt = d.CreatedAt }

// later is a dispatch whose work is so many days later: the same driver can have all of them.
func later(days int) func(*dispatch.Dispatch) {
	return func(d *dispatch.Dispatch) {
		d.WorkStartsAt, d.WorkEndsAt = d.WorkStartsAt.AddDate(0, 0, days), d.WorkEndsAt.AddDate(0, 0, days)
	}
}

// meanwhile is the rule, and between happens once, after the rule has first been asked and before the write.
func meanwhile(rule claimRule, between func()) (_ claimRule, asked *int) {
	asked = new(int)
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		events, err := rule(d, c, now)
		if *asked++; *asked == 1 {
			between()
		}
		return events, err
	}, asked
}

// mustAll has do called n times at once, and fails the test with each error.
func mustAll(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	testkit.Together(n, func(i int) { errs[i] = do(i) })
	must(t, errors.Join(errs...))
}

// mustHaveOneWinner has n drivers want a dispatch at once, by way of get, and fails the test unless one gets it, as it is stored
// then, and all the others get the error that refused names.
func (db *database) mustHaveOneWinner(t *testing.T, n int, get func(i int) (dispatch.Dispatch, error), refused func(i int) error) {
	t.Helper()
	var won atomic.Pointer[dispatch.Dispatch]
	testkit.Together(n, func(i int) {
		got, err := get(i)
		switch {
		case err != nil:
			mustBeError(t, "a driver who was not the first", err, refused(i))
		case !won.CompareAndSwap(nil, &got):
			t.Error("a second driver won")
		}
	})
	if won.Load() == nil {
		t.Fatal("no driver won")
	}
	db.mustStore(t, *won.Load())
}

// without does it while the database has no such table.
func (db *database) without(t testing.TB, table string, do func()) {
	t.Helper()
	db.exec(t, "ALTER TABLE "+table+" RENAME TO gone")
	do()
	db.exec(t, "ALTER TABLE gone RENAME TO "+table)
}

// bar writes an event of no dispatch, as resolve does.
func (db *database) bar(t testing.TB, event dispatch.EventID) {
	t.Helper()
	db.exec(t, "INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) VALUES (?, '', '', 0, '', '', 0)", event)
}

// withoutColumn calls do while the table has no such column.
func (db *database) withoutColumn(t testing.TB, table, column string, do func()) {
	t.Helper()
	db.exec(t, "ALTER TABLE "+table+" RENAME COLUMN "+column+" TO gone")
	do()
	db.exec(t, "ALTER TABLE "+table+" RENAME COLUMN gone TO "+column)
}

// addDriver adds a driver as edit changes someDriver.
func (db *database) addDriver(t testing.TB, edit func(*dispatch.Driver)) dispatch.Driver {
	t.Helper()
	v := someDriver(0)
	edit(&v)
	must(t, db.AddDrivers(t.Context(), []dispatch.Driver{v}))
	return v
}
