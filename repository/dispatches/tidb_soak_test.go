//go:build soak

package dispatches_test

import (
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// Thirty drivers race for one dispatch after another: each has one winner. It prints the races a second, beside MySQL's.
func TestSoakRacesOnTiDB(t *testing.T) {
	rate := map[string]float64{}
	servertest.OnEach(t, []string{servertest.TiDB, servertest.MySQL}, func(t *testing.T, kind string) {
		db := Pooled(t, kind)
		drivers := db.Fleet(t, 30)
		races, took := 0, time.Duration(0)
		for end := time.Now().Add(testkit.SoakTime(t) / 2); time.Now().Before(end); races++ {
			d := db.Add(t, Later(races))
			began := time.Now()
			db.MustHaveOneWinner(t, len(drivers), func(i int) (dispatch.Dispatch, error) {
				return db.Accept(t.Context(), d.ID, drivers[i].ID)
			}, func(int) error { return dispatch.ErrAlreadyTaken })
			took += time.Since(began)
		}
		db.MustHold(t, races, dispatch.EventAccepted, races)
		rate[kind] = float64(races) / took.Seconds()
		t.Logf("%s: %d races of 30, %.1f a second, one after another", kind, races, rate[kind])
	})
	if len(rate) == 2 {
		t.Logf("TiDB has %.2f times as many races a second as MySQL", rate[servertest.TiDB]/rate[servertest.MySQL])
	}
}
