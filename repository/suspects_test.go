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
		must(t, db.MarkDevicesSuspect(t.Context(), devices[:10]))
		must(t, db.MarkPushAccepted(t.Context(), devices[10:20]))
		db.exec(t, "UPDATE devices SET suspected_at = suspected_at - 3600000000 WHERE suspected_at IS NOT NULL")
		known := map[dispatch.DeviceID]string{}
		for i, v := range devices {
			known[v.ID] = []string{"suspected", "good", "new"}[i/10]
		}
		db.add(t, nil)
		o := db.as("ins_a")
		told := o.mustExpand(t, db, dispatch.EventCreated, 25)
		rest := o.mustLease(t, 10, 5)
		if len(told.Pushes) != 25 {
			t.Fatalf("%d are sent at once", len(told.Pushes))
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
