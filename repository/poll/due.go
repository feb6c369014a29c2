package poll

import (
	"context"

	"firsttap/dispatch/outbox"
)

// Due returns when a relay has to lease rows next, as known a second ago at most while the scheduler runs. ErrUnavailable.
func (p *Poll) Due(ctx context.Context) (outbox.Due, error) {
	w, err := p.Waiting(ctx, MaxAge, nil)
	if err != nil {
		return outbox.Due{}, err
	}
	return outbox.Due{ReadAt: w.ReadAt, Events: w.Local(w.Events), Notifications: w.Local(w.Notifications), Topics: w.Local(w.Topics)}, nil
}
