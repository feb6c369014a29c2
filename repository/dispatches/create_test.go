package dispatches_test

import (
	"context"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// A new dispatch is committed with its event, and without pushes. The relay of the same instance expands the event after the COMMIT, and so
// tells whoever was eligible by then: also those who went on duty while the dispatch was being written.
func TestEligibleBeforeTheCommit(t *testing.T) {
	EveryServer(t, func(t *testing.T, db *Bench) {
		outside := db
		late := db.Equipped(t, 1)[0]
		db.Exec(t, "UPDATE devices SET quarantined_at = 1")
		early := db.Equipped(t, 1)[0]
		var event dispatch.EventID
		db = db.By(OpenWith(t, db.URL, repository.Options{
			Log: Quiet, Patience: testkit.Patience, OutboxOwner: "ins_a", OutboxLease: time.Hour,
			OnCommit: func(_ dispatch.Dispatch, events []dispatch.Event) { event = events[len(events)-1].ID },
			Observer: func(ctx context.Context, s database.Statement) (context.Context, func(error)) {
				if s.Operation == "commit" {
					outside.Exec(t, "UPDATE devices SET quarantined_at = NULL")
				}
				return ctx, func(error) {}
			},
		}))
		db.Add(t, nil)
		db.MustCount(t, 0, "notifications")
		testkit.Equal(t, "the event's lease", "ins_a", db.LeaseOf(t, event).Claim)
		o := db.As("ins_a")
		_, err := o.ExpandFully(t.Context(), event, 10)
		Must(t, err)
		db.MustTell(t, event, dispatch.EventOpened, false, early, late)
	})
}
