package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// draining is the time between being told to end and taking no more requests.
type draining struct {
	begun atomic.Bool // the instance says that it is not ready
	last  time.Duration
	log   *slog.Logger
}

// wait has the instance say that it is not ready, and returns when whoever sends it requests has had time to notice: at
// once, unless errTerminated ended ctx. It returns the error of a server that fails meanwhile.
func (d *draining) wait(ctx context.Context, failed <-chan error) error {
	d.begun.Store(true)
	if !errors.Is(context.Cause(ctx), errTerminated) || d.last == 0 {
		return nil
	}
	d.log.Info("draining: not ready any more, and serving on", "for", d.last.String())
	over := time.NewTimer(d.last)
	defer over.Stop()
	select {
	case err := <-failed:
		return err
	case <-over.C:
		return nil
	}
}
