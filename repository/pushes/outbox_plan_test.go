package pushes_test

import (
	"regexp"
	"testing"

	"firsttap/dispatch"
	"firsttap/dispatch/outbox"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// Leases, results, expansions and drops find their rows by an index, in its order, however many rows are due or done, and of whichever
// priority.
func TestPlans(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		db.Device(t, v.ID, nil)
		db.Backlogged(t, d, Backlog)
		db.Exec(t, "UPDATE notifications SET due_at = due_at - MOD(CRC32(id), 1000), priority = 1 + MOD(CRC32(id), 3) WHERE state = 0")
		db.Exec(t, "ANALYZE TABLE notifications, events, devices, topics")
		var events []dispatch.EventID
		Must(t, db.Serve.With(t.Context()).Raw("SELECT id FROM events LIMIT 32").Scan(&events).Error)
		o := db.As("ins_a")
		db.MustReadFew(t, map[string]Reading{
			"a relay": {Do: func() error {
				o.MustLeaseEvents(t, 32, 32)
				pushes, _, err := o.LeaseNotifications(t.Context(), 64)
				Must(t, err)
				o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, pushIDs(pushes)...)
				o.MustExpand(t, db, dispatch.EventCreated, 10)
				db.MustAccept(t, d.ID, v.ID)
				if told := o.MustExpand(t, db, dispatch.EventAccepted, 10); told.Dropped == 0 || told.Unleased == 0 {
					t.Errorf("%d dropped, %d left", told.Dropped, told.Unleased)
				}
				return o.ReleaseEvents(t.Context())
			}, Each: 3000}, // 200 drivers have the offer
			"events that are expanded": {Do: func() error {
				_, err := o.Expand(t.Context(), events, 0)
				Must(t, err)
				return o.RecordResults(t.Context(), nil, events)
			}, Each: 20 * len(events)},
			"the backlog": {Do: func() error { return ErrorOfPage(db.Backlog(t.Context())) }, Most: Backlog * 3 / 2},
		})
	})
}

var updates = regexp.MustCompile(`\A\s*UPDATE (events|notifications|devices)\b`)

// Writes of leases, results and drops lock no row but their own, also where these are half of a table.
func TestPlansOfASmallTable(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		d, v := db.Add(t, nil), db.Fleet(t, 1)[0]
		devices := ToDevices(db.Equipped(t, 400))
		db.WriteNotifications(t, d, 400, devices)
		db.ManyEvents(t, 64)
		o := db.As("ins_a")
		updated := map[string]int{}
		for _, s := range db.Statements(t, func() {
			o.MustLeaseEvents(t, 32, 32)
			for range 2 {
				pushes, _, err := o.LeaseNotifications(t.Context(), 150)
				Must(t, err)
				o.MustRecord(t, outbox.SendResult{Status: outbox.Sent}, pushIDs(pushes)...)
				read := make([]dispatch.Device, len(pushes))
				for i := range pushes {
					read[i] = pushes[i].Device
				}
				Must(t, ErrorOf(db.RecordVerdict(t.Context(), outbox.Suspected, read)))
			}
			db.MustAccept(t, d.ID, v.ID)
			if e := o.MustExpand(t, db, dispatch.EventAccepted, 10); e.Dropped != 100 {
				t.Errorf("%d dropped", e.Dropped)
			}
		}) {
			if of := updates.FindStringSubmatch(s); of != nil {
				updated[of[1]]++
				testkit.Equal(t, s[:min(len(s), 160)], []string{"PRIMARY"}, db.Explain(t, s))
			}
		}
		if len(updated) != 3 {
			t.Errorf("updates were looked at of %v", updated)
		}
	})
}
