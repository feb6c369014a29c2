package repository

import (
	"errors"
	"testing"
	"time"

	"firsttap/dispatch"
)

// Between the rule's look and the write, something moves. The row's own condition must refuse the write; the rule is
// then asked again, and here gives up.
func TestEachConditionOfTheClaimHolds(t *testing.T) {
	gaveUp := errors.New("asked again")
	for name, move := range map[string]string{
		"status":          "UPDATE dispatches SET status = 'CANCELED'",
		"round":           "UPDATE dispatches SET round = 2",
		"opens_at":        "UPDATE dispatches SET opens_at = opens_at + 3600000000, expires_at = expires_at + 3600000000",
		"expires_at":      "UPDATE dispatches SET expires_at = opens_at + 1",
		"driver":          "UPDATE drivers SET version = version + 1",
		"another's hours": "INSERT INTO claims SELECT 'clm_other', 'dsp_other', 1, id, 1, 'WON', 1, NULL FROM drivers",
	} {
		t.Run(name, func(t *testing.T) {
			every(t, func(t *testing.T, db *database) {
				d, v := db.add(t, nil), db.drivers(t, 1)[0]
				asked := 0
				accept := rule(1)
				_, err := db.Claim(t.Context(), d.ID, v.ID, func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
					if asked++; asked > 1 {
						return nil, gaveUp
					}
					events, err := accept(d, c, now)
					db.exec(t, move)
					return events, err
				})
				if !errors.Is(err, gaveUp) {
					t.Fatalf("the claim was not refused: %v", err)
				}
				if n := db.count(t, "claims WHERE dispatch_id = ?", d.ID) + db.count(t, "dispatches WHERE accepted_by IS NOT NULL") +
					db.count(t, "events WHERE type = 'dispatch.accepted'"); n != 0 {
					t.Error("something of the refused claim was written")
				}
			})
		})
	}
}
