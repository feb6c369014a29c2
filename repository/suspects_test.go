package repository

import (
	"testing"
	"time"

	"firsttap/dispatch"
)

// A push has its token's verdict, by the clock of the sender; suspect tokens come last.
func TestSuspectsComeLast(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		devices := db.equipped(t, 30)
		if err := db.MarkDevicesSuspect(t.Context(), devices[:10]); err != nil {
			t.Fatal(err)
		}
		if err := db.MarkPushAccepted(t.Context(), devices[10:20]); err != nil {
			t.Fatal(err)
		}
		db.exec(t, "UPDATE devices SET suspected_at = suspected_at - 3600000000 WHERE suspected_at IS NOT NULL")
		known := map[dispatch.DeviceID]string{}
		for i, v := range devices {
			known[v.ID] = []string{"suspected", "good", "new"}[i/10]
		}
		db.add(t, nil)
		o := db.as("ins_a")
		told := o.mustExpand(t, db, dispatch.EventCreated, 25)
		rest, _, err := o.LeaseNotifications(t.Context(), 10)
		if err != nil || len(told.Pushes) != 25 || len(rest) != 5 {
			t.Fatalf("%d at once, %d leased, %v", len(told.Pushes), len(rest), err)
		}
		for i, p := range append(told.Pushes, rest...) {
			is := "new"
			switch v := p.Device; {
			case v.SuspectedAt != nil:
				is = "suspected"
				if !near(*v.SuspectedAt, time.Now().Add(-time.Hour)) {
					t.Errorf("suspected at %s", v.SuspectedAt)
				}
			case v.PushAcceptedAt != nil:
				is = "good"
				if !near(*v.PushAcceptedAt, time.Now()) {
					t.Errorf("good at %s", v.PushAcceptedAt)
				}
			}
			if is != known[p.Device.ID] {
				t.Errorf("push %d says %s of a token that is %s", i, is, known[p.Device.ID])
			}
			if (i >= 20) != (is == "suspected") {
				t.Errorf("push %d is to one that is %s", i, is)
			}
		}
	})
}
