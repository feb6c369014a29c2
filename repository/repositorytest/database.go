package repositorytest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
)

// EachOwn runs the test on servers that are the test's own. Its account may write to a server that is read-only, so that
// no error of the server's stands in for what is looked at.
func EachOwn(t *testing.T, test func(*testing.T, *Bench)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		if kind == servertest.TiDB {
			t.Skip("TiDB has no read_only")
		}
		test(t, Migrated(t, servertest.StartDatabase(t, kind).URL(t)))
	})
}

// Claiming begins a claim, and delivers its error.
func Claiming(t *testing.T, s *repository.Store, id dispatch.ID, driver dispatch.DriverID) <-chan error {
	return Begin(func() error { return ErrorOf(s.Dispatches.Claim(t.Context(), id, driver, Rule(0))) })
}

// Started runs a probe until the test ends.
func Started(t *testing.T, s *repository.Store) *database.Probe {
	t.Helper()
	p := s.Probe(t.Context())
	testkit.Run(t, p.Run)
	return p
}

// MustProbeUp fails the test unless a probe that begins meanwhile finds the database up. A single one gives it a second to answer.
func (db *Bench) MustProbeUp(t *testing.T, meanwhile string) {
	t.Helper()
	testkit.Eventually(t, "up, while "+meanwhile, func() bool { return db.Probe(t.Context()).Up() })
}

// WatchKey is the key of a value in the context of a caller whose statements a Watched checks.
type WatchKey struct{}

// Watched keeps the statements that a store reports.
type Watched struct {
	Mu     sync.Mutex
	Said   []string // pool and operation
	Wrong  []string
	Failed int
	Open   int
}

// Watch is a database.StatementObserver.
func (w *Watched) Watch(ctx context.Context, s database.Statement) (context.Context, func(error)) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Open++
	w.Said = append(w.Said, s.Pool+" "+s.Operation)
	if ctx.Value(WatchKey{}) == nil || strings.Contains(s.Query, "drv_") || strings.Contains(s.Query, "dsp_") {
		w.Wrong = append(w.Wrong, s.Query)
	}
	return ctx, func(err error) {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		w.Open--
		if err != nil {
			w.Failed++
		}
	}
}

// Take returns the pools and operations since the last call.
func (w *Watched) Take() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	said := w.Said
	w.Said = nil
	return said
}
