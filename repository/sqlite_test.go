package repository_test

import (
	"errors"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	. "firsttap/repository/repositorytest"
)

// Two processes on one SQLite file: each has a writer of its own.
func TestTwoStoresOnOneFile(t *testing.T) {
	db := Pooled(t, servertest.SQLite)
	other := OpenPatient(t, db.URL)
	d, drivers := db.Add(t, nil), db.Fleet(t, 20)
	MustWinOnce(t, len(drivers), dispatch.ErrAlreadyTaken, func(i int) error {
		return ErrorOf([]*repository.Store{db.Store, other}[i%2].Dispatches.Claim(t.Context(), d.ID, drivers[i].ID, Rule(0)))
	})
	db.MustHold(t, 1, dispatch.EventAccepted, 1)
}

// A transaction that reads before it writes must hold the file from its beginning.
func TestTwoStoresUpdateOneFile(t *testing.T) {
	db := Pooled(t, servertest.SQLite)
	other := OpenPatient(t, db.URL)
	d := db.Add(t, nil)
	const n = 40
	MustAll(t, n, func(i int) error {
		return ErrorOf([]*repository.Store{db.Store, other}[i%2].Dispatches.Update(t.Context(), d.ID, Touch))
	})
	if got := db.MustRead(t, d.ID); got.Version != 1+n {
		t.Errorf("version %d after %d updates", got.Version, n)
	}
}

// Ten instances open and migrate a file that does not exist, at once. SQLite refuses some of them for a moment without waiting.
func TestOpenAFileTogether(t *testing.T) {
	t.Parallel()
	for range 20 {
		u := servertest.EmptyURL(t, servertest.SQLite)
		MustAll(t, 10, func(int) error {
			s, err := repository.Open(t.Context(), u, repository.Options{Log: Quiet, Patience: testkit.Patience})
			if err != nil {
				return err
			}
			return errors.Join(Up(t.Context(), s), s.Close())
		})
	}
}
