package repository_test

import (
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// On a Galera cluster a transaction may lose at its COMMIT against one that another node has committed. The outcome is known: nothing was
// written, and the transaction is made again. Here the first node has applied the other's transaction before the COMMIT.
func TestACommitThatLoses(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	g := servertest.StartGalera(t)
	db := Migrated(t, g.Nodes[0].URL(t))
	here := Direct(t, db.URL)
	elsewhere := Direct(t, strings.Replace(db.URL, g.Nodes[0].Addr(), g.Nodes[1].Addr(), 1))
	d := db.Add(t, nil)
	note := func() (note string) {
		Must(t, here.QueryRow("SELECT note FROM dispatches WHERE id = ?", d.ID).Scan(&note))
		return note
	}
	tries := 0
	Must(t, db.Decide.Transact(t.Context(), func(tx database.Tx) error {
		tries++
		Must(t, tx.Exec("UPDATE dispatches SET note = 'of the first node' WHERE id = ?", d.ID).Error)
		if tries == 1 {
			Must(t, ErrorOf(elsewhere.Exec("UPDATE dispatches SET note = 'of the other node' WHERE id = ?", d.ID)))
			testkit.Eventually(t, "the first node has what the other has committed", func() bool { return note() == "of the other node" })
		}
		return nil
	}))
	if tries != 2 || note() != "of the first node" {
		t.Errorf("after %d tries the note is %q", tries, note())
	}
}
