package repository

import (
	"errors"
	"testing"

	"firsttap/dispatch"
	"firsttap/testkit"
)

// Leases whose pushes could not be read are released before the next lease. If the answer to that is lost, the pushes are leased again, and
// the release that is repeated ends none of these new leases.
func TestReleaseWithoutAnAnswer(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		const n = 3
		d, devices := db.add(t, nil), db.equipped(t, 1)
		db.notifications(t, d, n, func(_ int, row *notificationRow) { toDevices(devices)(0, row) })
		s, proxy := db.proxied(t)
		o := s.as("ins_a")
		lease := func() (int, error) {
			pushes, _, err := o.LeaseNotifications(t.Context(), n)
			return len(pushes), err
		}
		cut := proxy.CutReply("FROM dispatches d WHERE id")
		if leased, err := lease(); leased != 0 || !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("without a read: %d pushes, %v", leased, err)
		}
		testkit.Await(t, "the cut of the read", cut.Done())
		cut = proxy.CutReply("SET claim = '', next_at = turn")
		if leased, err := lease(); leased != n || err == nil {
			t.Errorf("without the answer of the release: %d pushes, %v", leased, err)
		}
		testkit.Await(t, "the cut of the release", cut.Done())
		if leased, err := lease(); leased != 0 || err != nil {
			t.Errorf("after the release: %d pushes, %v", leased, err)
		}
		db.mustCount(t, n, "notifications WHERE claim = 'ins_a' AND state = 0")
	})
}
