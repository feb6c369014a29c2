package repository

import (
	"slices"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/servertest"
	"firsttap/testkit"
)

// A primary that does not answer, and reads that use all connections, say nothing about the replica: the instance does not leave it.
func TestHealthyReplicaIsKept(t *testing.T) {
	eachReplicated(t, servertest.Servers(), func(t *testing.T, r *replicated) {
		l := r.lister(t, 5*time.Second, false)
		// Each server has 5 s for what takes it no time, however busy the machine is: to say how far the primary is, and that the replica is there.
		l.replica.lag, l.replica.answer = 5*time.Second, 10*time.Second
		mustBeUsed := func(what string, byReplica, byPrimary uint64) {
			t.Helper()
			use, _ := l.Replica()
			testkit.Equal(t, what, ReplicaUse{ByReplica: byReplica, ByPrimary: byPrimary, InUse: true}, use)
		}
		d := r.add(t, nil)
		l.mustSee(t, d)

		begun, release := make(chan struct{}, replicaConns), make(chan struct{})
		var reads sync.WaitGroup
		for range replicaConns {
			reads.Go(func() {
				err := l.Store.list(t.Context(), func(*gorm.DB) error {
					begun <- struct{}{}
					<-release
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range replicaConns {
			testkit.Await(t, "a read at the replica begins", begun)
		}
		l.sent.take()
		l.mustSee(t, d)
		testkit.Equal(t, "the statements while all connections are in use", slices.Concat(byReplica[:1], byPrimary), l.sent.take())
		close(release)
		reads.Wait()
		mustBeUsed("after reads that used all connections", 1+replicaConns, 1)
		l.mustSee(t, d)
		testkit.Equal(t, "the statements then", byReplica, l.sent.take())

		r.Primary.Freeze()
		mustBeError(t, "a list while the primary stands still", errorOfPage(l.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 1}})), dispatch.ErrUnavailable)
		mustBeUsed("after a primary that stood still", 2+replicaConns, 2)
		r.Primary.Thaw()
		testkit.Retry(t, func() error {
			l.sent.take()
			l.mustSee(t, d)
			return differ(byReplica, l.sent.take())
		})
	})
}
