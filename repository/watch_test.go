package repository

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
)

type watchKey struct{}

// watched keeps the statements that a store reports.
type watched struct {
	mu     sync.Mutex
	said   []string // pool and operation
	wrong  []string
	failed int
	open   int
}

func (w *watched) watch(ctx context.Context, s Statement) (context.Context, func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	w.said = append(w.said, s.Pool+" "+s.Operation)
	if ctx.Value(watchKey{}) == nil || strings.Contains(s.Query, "drv_") || strings.Contains(s.Query, "dsp_") {
		w.wrong = append(w.wrong, s.Query)
	}
	return ctx, func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
		if err != nil {
			w.failed++
		}
	}
}

func (w *watched) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// Watch is called for each statement of a claim, for its end, and for nothing that was not sent.
func TestWatch(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		w, ctx := &watched{}, context.WithValue(t.Context(), watchKey{}, true)
		d, v := db.add(t, nil), db.drivers(t, 1)[0]
		writes := "writes"
		if db.writes == db.claims {
			writes = "claims"
		}
		pools := len(db.Pools())
		db.observe(w.watch)
		if len(db.Pools()) != pools || pools < 2 {
			t.Errorf("%d pools of %d are left", len(db.Pools()), pools)
		}
		if _, err := db.accept(ctx, d.ID, v.ID); err != nil {
			t.Fatal(err)
		}
		want := []string{"select", "begin", "update", "insert", "insert", "insert", "commit"}
		for i := range want {
			want[i] = "claims " + want[i]
		}
		if got := w.take(); !slices.Equal(got, want) {
			t.Errorf("a claim asks %v, want %v", got, want)
		}
		no := errors.New("no")
		_, err := db.Update(ctx, d.ID, func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error) { return nil, no })
		if got := w.take(); !errors.Is(err, no) || got[len(got)-1] != writes+" rollback" {
			t.Errorf("%v: an update without a change runs %v", err, got)
		}
		gone, leave := context.WithCancel(ctx)
		leave()
		if _, err := db.Driver(gone, v.ID); err == nil || w.failed == 0 {
			t.Errorf("%v: Watch is not called", err)
		}
		if w.open != 0 || len(w.wrong) > 0 {
			t.Errorf("%d are not over; %q", w.open, w.wrong)
		}
	})
}
