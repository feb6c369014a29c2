package service

import (
	"context"
	"time"

	"firsttap/dispatch"
)

// Preview counts who would be offered the order now, and why the others would not. dispatch.ErrWindow, ErrUnavailable.
func (s *Dispatcher) Preview(ctx context.Context, o Order) (dispatch.Preview, error) {
	p := dispatch.NewPreview()
	now, err := s.store.EachCandidate(ctx, o.Terms, func(c dispatch.Candidate, reachable bool, now time.Time) {
		p.Count(c, reachable, o.Terms, now)
	})
	if err == nil {
		_, err = o.window(now)
	}
	return p, err
}

// Update puts terms and window in the place of those that a dispatch has at that version. The errors are those of
// dispatch.Dispatch.Update, and ErrNotFound, ErrUnavailable, ErrUnknown.
func (s *Dispatcher) Update(ctx context.Context, id dispatch.ID, version int, terms dispatch.Terms, window dispatch.Window,
	actor string,
) (dispatch.Dispatch, error) {
	return s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Update(version, terms, window, actor, now)
	})
}

// Extend has an offer stand longer. The errors are those of dispatch.Dispatch.Extend, and as of Update.
func (s *Dispatcher) Extend(ctx context.Context, id dispatch.ID, version int, until time.Time, actor string) (dispatch.Dispatch, error) {
	return s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Extend(version, until, actor, now)
	})
}

// Reopen opens the next round of what nobody took: at opens, nil for now, until expires, nil for as long as the last round
// stood. The errors are those of dispatch.Dispatch.Reopen, and as of Update.
func (s *Dispatcher) Reopen(ctx context.Context, id dispatch.ID, version int, opens, expires *time.Time, actor string) (dispatch.Dispatch, error) {
	return s.store.Update(ctx, id, func(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
		return d.Reopen(version, opens, expires, actor, now)
	})
}
