package repository

import (
	"errors"
	"testing"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// Two processes on one SQLite file: each has a writer of its own.
func TestTwoStoresOnOneFile(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	other := open(t, db.url)
	d, drivers := db.add(t, nil), db.drivers(t, 20)
	mustWinOnce(t, len(drivers), dispatch.ErrAlreadyTaken, func(i int) error {
		return errorOf([]*Store{db.Store, other}[i%2].Claim(t.Context(), d.ID, drivers[i].ID, rule(0)))
	})
	db.mustHold(t, 1, dispatch.EventAccepted, 1)
}

// A transaction that reads before it writes must hold the file from its beginning.
func TestTwoStoresUpdateOneFile(t *testing.T) {
	db := pooled(t, servertest.SQLite)
	other := open(t, db.url)
	d := db.add(t, nil)
	const n = 40
	mustAll(t, n, func(i int) error { return errorOf([]*Store{db.Store, other}[i%2].Update(t.Context(), d.ID, touch)) })
	if got := db.mustRead(t, d.ID); got.Version != 1+n {
		t.Errorf("version %d after %d updates", got.Version, n)
	}
}

// Ten instances open and migrate a file that does not exist, at once. SQLite refuses some of them for a moment without waiting.
func TestOpenAFileTogether(t *testing.T) {
	t.Parallel()
	for range 20 {
		u := servertest.EmptyURL(t, servertest.SQLite)
		mustAll(t, 10, func(int) error {
			s, err := Open(t.Context(), u, Options{Log: quiet, Patience: testkit.Patience})
			if err != nil {
				return err
			}
			return errors.Join(s.up(t.Context()), s.Close())
		})
	}
}
