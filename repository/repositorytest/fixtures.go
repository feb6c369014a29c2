package repositorytest

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// Begin does it in a goroutine. The channel has its error once it has ended.
func Begin(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return ended
}

// MustStore fails the test unless the dispatch is stored as want says.
func (db *Bench) MustStore(t testing.TB, want dispatch.Dispatch) {
	t.Helper()
	if got := db.MustRead(t, want.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("the dispatch is stored as\n%+v, want\n%+v", got, want)
	}
}

// MustOutcome fails the test unless the driver's newest claim of the dispatch has that outcome. A claim that is not won any more
// ended with the dispatch's last change.
func (db *Bench) MustOutcome(t testing.TB, d dispatch.Dispatch, v dispatch.DriverID, want dispatch.Outcome) {
	t.Helper()
	past, err := db.ClaimOf(t.Context(), d.ID, v, 0)
	Must(t, err)
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

// Soon is a dispatch that is not open yet.
func Soon(d *dispatch.Dispatch) {
	d.OpensAt = d.CreatedAt.Add(time.Hour)
	d.ExpiresAt = d.OpensAt.Add(time.Hour)
}

// Over is a dispatch whose window has passed.
func Over(d *dispatch.Dispatch) { d.ExpiresAt = d.CreatedAt }

// Later is a dispatch whose work is so many days later: the same driver can have all of them.
func Later(days int) func(*dispatch.Dispatch) {
	return func(d *dispatch.Dispatch) {
		d.WorkStartsAt, d.WorkEndsAt = d.WorkStartsAt.AddDate(0, 0, days), d.WorkEndsAt.AddDate(0, 0, days)
	}
}

// Meanwhile is the rule, and between happens once, after the rule has first been asked and before the write.
func Meanwhile(rule ClaimRule, between func()) (_ ClaimRule, asked *int) {
	asked = new(int)
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		events, err := rule(d, c, now)
		if *asked++; *asked == 1 {
			between()
		}
		return events, err
	}, asked
}

// MustAll has do called n times at once, and fails the test with each error.
func MustAll(t testing.TB, n int, do func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	testkit.Together(n, func(i int) { errs[i] = do(i) })
	Must(t, errors.Join(errs...))
}

// MustHaveOneWinner has n drivers want a dispatch at once, by way of get, and fails the test unless one gets it, as it is stored
// then, and all the others get the error that refused names.
func (db *Bench) MustHaveOneWinner(t *testing.T, n int, get func(i int) (dispatch.Dispatch, error), refused func(i int) error) {
	t.Helper()
	var won atomic.Pointer[dispatch.Dispatch]
	testkit.Together(n, func(i int) {
		got, err := get(i)
		switch {
		case err != nil:
			MustBeError(t, "a driver who was not the first", err, refused(i))
		case !won.CompareAndSwap(nil, &got):
			t.Error("a second driver won")
		}
	})
	if won.Load() == nil {
		t.Fatal("no driver won")
	}
	db.MustStore(t, *won.Load())
}

// Without does it while the database has no such table.
func (db *Bench) Without(t testing.TB, table string, do func()) {
	t.Helper()
	db.Exec(t, "ALTER TABLE "+table+" RENAME TO gone")
	do()
	db.Exec(t, "ALTER TABLE gone RENAME TO "+table)
}

// Bar writes an event of no dispatch, as resolve does.
func (db *Bench) Bar(t testing.TB, event dispatch.EventID) {
	t.Helper()
	db.Exec(t, "INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at) VALUES (?, '', '', 0, '', '', 0)", event)
}

// WithoutColumn calls do while the table has no such column.
func (db *Bench) WithoutColumn(t testing.TB, table, column string, do func()) {
	t.Helper()
	db.Exec(t, "ALTER TABLE "+table+" RENAME COLUMN "+column+" TO gone")
	do()
	db.Exec(t, "ALTER TABLE "+table+" RENAME COLUMN gone TO "+column)
}

// AddDriver adds a driver as edit changes someDriver.
func (db *Bench) AddDriver(t testing.TB, edit func(*dispatch.Driver)) dispatch.Driver {
	t.Helper()
	v := SomeDriver(0)
	edit(&v)
	Must(t, db.AddDrivers(t.Context(), []dispatch.Driver{v}, false))
	return v
}
