package repositorytest

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
	"firsttap/repository"
)

// Counting is the database by way of a Store that counts its statements.
func (db *Bench) Counting(t testing.TB) (*Bench, *Watched) {
	t.Helper()
	w := &Watched{}
	return db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: testkit.Patience, Observer: w.Watch})), w
}

// Restricted is the database by way of a user who has the privileges only, and what the Store logs.
func (db *Bench) Restricted(t testing.TB, privileges string) (*Bench, *testkit.LogBuffer) {
	t.Helper()
	u, err := url.Parse(db.URL)
	Must(t, err)
	name := "u" + strings.TrimPrefix(u.Path, "/")
	t.Cleanup(func() {
		if _, err := db.Raw.Exec("DROP USER " + name); err != nil {
			t.Error(err)
		}
	})
	db.Exec(t, "CREATE USER "+name+" IDENTIFIED BY 'secret'")
	db.Exec(t, "GRANT "+privileges+" ON "+strings.TrimPrefix(u.Path, "/")+".* TO "+name)
	u.User = url.UserPassword(name, "secret")
	log := &testkit.LogBuffer{}
	s := OpenWith(t, u.String(), repository.Options{Log: slog.New(slog.NewTextHandler(log, nil)), Patience: testkit.Patience})
	return db.By(s), log
}

// Hold locks the dispatch's row in another session until the test ends or release is called.
func (db *Bench) Hold(t testing.TB, id dispatch.ID) (tx *sql.Tx, release func()) {
	t.Helper()
	tx = db.Begun(t)
	Must(t, ErrorOf(tx.Exec("UPDATE dispatches SET note = note WHERE id = ?", id)))
	return tx, func() { tx.Rollback() }
}

// LockWait is a session that waits for a lock.
var LockWait = regexp.MustCompile(`(?s)\nLOCK WAIT .*?thread id (\d+),`)

// Waiting waits until a session waits for a row lock in this database.
func (db *Bench) Waiting(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, "a session waits for a row", func() bool {
		if db.Dialect == migrations.TiDB {
			return db.Count(t, "information_schema.tidb_trx WHERE db = DATABASE() AND state = 'LockWaiting'") > 0
		}
		var engine, name, status string
		// Unlike information_schema.innodb_trx it is never old, however many tests ask.
		Must(t, db.Raw.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status))
		_, transactions, _ := strings.Cut(status, "LIST OF TRANSACTIONS FOR EACH SESSION")
		for transaction := range strings.SplitSeq(transactions, "---TRANSACTION") {
			waits := LockWait.FindStringSubmatch(transaction)
			its := func(s servertest.Session) bool { return s.ID == waits[1] }
			if waits != nil && slices.ContainsFunc(servertest.Sessions(t, db.Raw), its) {
				return true
			}
		}
		return false
	})
}

// CallOfClaim is how a claim is written on a server, in one packet.
const CallOfClaim = "CALL firsttap_claim"

// Offering is a dispatch that is open for an hour from now.
func Offering(externalID string) func(time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
	return func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		w := dispatch.Window{OpensAt: now, ExpiresAt: now.Add(time.Hour)}
		d, events := dispatch.New(dispatch.NewID(now), externalID, SomeTerms(now), w, dispatch.System, now)
		return d, events, nil
	}
}

// Trail returns a dispatch's events that are to be expanded, in order.
func (db *Bench) Trail(t *testing.T, id dispatch.ID) []string {
	t.Helper()
	var rows []struct {
		Type, Driver, Actor, Reason string
		Round                       int
	}
	Must(t, db.Serve.With(t.Context()).Raw(`SELECT e.type, e.round, COALESCE(e.driver_id, '-') driver, e.actor, e.reason_code reason
		FROM events e WHERE e.dispatch_id = ? AND e.next_at IS NOT NULL ORDER BY e.id`, id).Scan(&rows).Error)
	trail := make([]string, len(rows))
	for i, e := range rows {
		trail[i] = fmt.Sprintf("%s %d %s %s %s", e.Type, e.Round, e.Driver, e.Actor, e.Reason)
	}
	return trail
}

// GiveBack withdraws within the limits.
func (db *Bench) GiveBack(t testing.TB, id dispatch.ID, v dispatch.DriverID) (dispatch.Dispatch, error) {
	t.Helper()
	return db.Withdraw(t.Context(), id, v, func(d *dispatch.Dispatch, past dispatch.Withdrawals, now time.Time) ([]dispatch.Event, error) {
		if err := past.Check(now); err != nil {
			return nil, err
		}
		return d.Withdraw(v, "SICK", now)
	})
}

// WhateverElse accepts the dispatch in its current round, whatever else the driver has or has given back.
func WhateverElse(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
	c.Busy, c.HadIt = false, false
	return d.Accept(c, 0, dispatch.NewClaimID(now), now)
}

// Take has the driver take the dispatch.
func (db *Bench) Take(t testing.TB, id dispatch.ID, v dispatch.DriverID) dispatch.Dispatch {
	t.Helper()
	d, err := db.Claim(t.Context(), id, v, WhateverElse)
	Must(t, err)
	return d
}

// TakeAndGiveBack fails the test unless the driver gets the dispatch and may withdraw.
func (db *Bench) TakeAndGiveBack(t testing.TB, id dispatch.ID, v dispatch.DriverID) {
	t.Helper()
	db.Take(t, id, v)
	Must(t, ErrorOf(db.GiveBack(t, id, v)))
}

// Rule is the domain's own, for a claim with an id of its own.
func Rule(round int) ClaimRule {
	id := dispatch.NewClaimID(time.Now())
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		return d.Accept(c, round, id, now)
	}
}

// Accept claims the dispatch in whichever round is current, by the domain's rule.
func (db *Bench) Accept(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Dispatch, error) {
	return db.Claim(ctx, id, driver, Rule(0))
}

// MustAccept is Accept of a claim that is won.
func (db *Bench) MustAccept(t testing.TB, id dispatch.ID, driver dispatch.DriverID) dispatch.Dispatch {
	t.Helper()
	d, err := db.Accept(t.Context(), id, driver)
	Must(t, err)
	return d
}

// Change is what an update does to a dispatch.
type Change = func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)

// MustUpdate is Update of a change that is made.
func (db *Bench) MustUpdate(t testing.TB, id dispatch.ID, do Change) dispatch.Dispatch {
	t.Helper()
	d, err := db.Update(t.Context(), id, do)
	Must(t, err)
	return d
}

// MustRead returns the dispatch as it is stored.
func (db *Bench) MustRead(t testing.TB, id dispatch.ID) dispatch.Dispatch {
	t.Helper()
	d, err := db.Dispatch(t.Context(), id)
	Must(t, err)
	return d
}

// Cancel cancels a dispatch.
func Cancel(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Cancel(d.Version, dispatch.System, "RAIN", now)
}

// Touch changes nothing but the version.
func Touch(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	d.Version++
	return []dispatch.Event{
		{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID, ReasonCode: dispatch.ReasonExtended, At: now},
	}, nil
}

// Start starts the work of the driver who has the dispatch.
func Start(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Start(dispatch.Driver{ID: d.Claim.Driver}, now)
}

// Complete completes it.
func Complete(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Complete(d.Claim.Driver, now)
}

// Withdraw gives the dispatch back.
func Withdraw(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Withdraw(d.Claim.Driver, "SICK", now)
}

// ClaimRule decides about a claim.
type ClaimRule = func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error)
