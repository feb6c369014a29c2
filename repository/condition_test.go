package repository

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"firsttap/dispatch"
)

// moved are statements that end any offer.
var moved = map[string]string{
	"status":          "UPDATE dispatches SET status = 'CANCELED'",
	"round":           "UPDATE dispatches SET round = 2",
	"driver":          "UPDATE drivers SET version = version + 1",
	"another's hours": "INSERT INTO claims SELECT 'clm_other', 'dsp_other', 1, id, 1, 'WON', 1, NULL FROM drivers",
}

func TestEachConditionOfTheClaimHolds(t *testing.T) {
	moves := maps.Clone(moved)
	moves["opens_at"] = "UPDATE dispatches SET opens_at = opens_at + 3600000000, expires_at = expires_at + 3600000000"
	moves["expires_at"] = "UPDATE dispatches SET expires_at = opens_at + 1"
	mustRefuseEach(t, moves, nil, func() claimRule { return rule(1) }, (*Store).Claim)
}

func TestEachConditionOfTheAssignmentHolds(t *testing.T) {
	moves := maps.Clone(moved)
	moves["version"] = "UPDATE dispatches SET version = 2"
	moves["expires_at"] = "UPDATE dispatches SET expires_at = 1"
	mustRefuseEach(t, moves, soon, func() claimRule { return assigning(1) }, (*Store).Assign)
}

// mustRefuseEach fails the test unless write writes nothing if a statement moves something between the rule's look and the write.
// The row's own condition must refuse the write; the rule is then asked again, and here gives up.
func mustRefuseEach(t *testing.T, moves map[string]string, edit func(*dispatch.Dispatch), rule func() claimRule,
	write func(*Store, context.Context, dispatch.ID, dispatch.DriverID, claimRule) (dispatch.Dispatch, error),
) {
	gaveUp := errors.New("asked again")
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			every(t, func(t *testing.T, db *database) {
				d, v := db.add(t, edit), db.drivers(t, 1)[0]
				decide, asked := rule(), 0
				_, err := write(db.Store, t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
					if asked++; asked > 1 {
						return nil, gaveUp
					}
					events, err := decide(d, c, now)
					db.exec(t, move)
					return events, err
				})
				if !errors.Is(err, gaveUp) {
					t.Fatalf("it was not refused: %v", err)
				}
				db.mustCount(t, 0, "claims WHERE dispatch_id = ?", d.ID)
				db.mustCount(t, 0, "dispatches WHERE accepted_by IS NOT NULL")
				db.mustCount(t, 0, "events WHERE type = 'dispatch.accepted'")
			})
		})
	}
}
