package database_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// A primary that does not answer, and reads that use all connections, say nothing about the replica: the instance does not leave it.
func TestHealthyReplicaIsKept(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		l := r.lister(t, 5*time.Second, false)
		// Each server has 5 s for what takes it no time, however busy the machine is: to say how far the primary is, and that the replica is
		// there.
		l.SetReplica(5*time.Second, 10*time.Second, time.Hour)
		mustBeUsed := func(what string, byReplica, byPrimary uint64) {
			t.Helper()
			use, _ := l.Replica()
			testkit.Equal(t, what, database.ReplicaUse{ByReplica: byReplica, ByPrimary: byPrimary, InUse: true}, use)
		}
		d := r.Add(t, nil)
		l.mustSee(t, d)

		begun, release := make(chan struct{}, database.ReplicaConns), make(chan struct{})
		var reads sync.WaitGroup
		for range database.ReplicaConns {
			reads.Go(func() {
				err := l.Store.List(t.Context(), func(database.Tx) error {
					begun <- struct{}{}
					<-release
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range database.ReplicaConns {
			testkit.Await(t, "a read at the replica begins", begun)
		}
		l.sent.Take()
		l.mustSee(t, d)
		testkit.Equal(t, "the statements while all connections are in use", byPrimary, l.sent.Take())
		close(release)
		reads.Wait()
		mustBeUsed("after reads that used all connections", 1+database.ReplicaConns, 1)
		l.mustSee(t, d)
		testkit.Equal(t, "the statements then", byReplica, l.sent.Take())

		r.Primary.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		MustBeError(t, "a list while the primary stands still", ErrorOfPage(l.Dispatches.List(ctx, dispatch.Query{Page: dispatch.Page{Limit: 1}})), dispatch.ErrUnavailable)
		mustBeUsed("after a primary that stood still", 2+database.ReplicaConns, 2)
		r.Primary.Thaw()
		testkit.Retry(t, func() error {
			l.sent.Take()
			l.mustSee(t, d)
			return differ(byReplica, l.sent.Take())
		})
	})
}
