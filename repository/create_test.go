package repository

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// A new dispatch is committed with its event, and without pushes. The relay of the same instance expands the event after the COMMIT, and so
// tells whoever was eligible by then: also those who went on duty while the dispatch was being written.
func TestEligibleBeforeTheCommit(t *testing.T) {
	everyServer(t, func(t *testing.T, db *database) {
		outside := db
		late := db.equipped(t, 1)[0]
		db.exec(t, "UPDATE devices SET quarantined_at = 1")
		early := db.equipped(t, 1)[0]
		var event dispatch.EventID
		db = db.by(openWith(t, db.url, Options{
			Log: quiet, Patience: testkit.Patience, OutboxOwner: "ins_a", OutboxLease: time.Hour,
			OnCommit: func(_ dispatch.Dispatch, events []dispatch.Event) { event = events[len(events)-1].ID },
			Observer: func(ctx context.Context, s Statement) (context.Context, func(error)) {
				if s.Operation == "commit" {
					outside.exec(t, "UPDATE devices SET quarantined_at = NULL")
				}
				return ctx, func(error) {}
			},
		}))
		db.add(t, nil)
		db.mustCount(t, 0, "notifications")
		testkit.Equal(t, "the event's lease", "ins_a", db.leaseOf(t, event).Claim)
		o := db.as("ins_a")
		_, err := o.expandFully(t.Context(), event, 10)
		must(t, err)
		db.mustTell(t, event, dispatch.EventOpened, false, early, late)
	})
}
