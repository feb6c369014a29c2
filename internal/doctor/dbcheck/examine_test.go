package dbcheck_test

import (
	"strings"
	"testing"

	"firsttap/internal/doctor"
	"firsttap/internal/doctor/dbcheck"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/repository/repositorytest"
)

// ShedLock's own table has TIMESTAMP columns, which depend on the zones of sessions.
func TestDoctorOnShedLocksOwnTable(t *testing.T) {
	db := repositorytest.Pooled(t, servertest.MariaDB)
	for _, c := range []struct {
		alter string
		want  doctor.Status
	}{
		{"MODIFY lock_until TIMESTAMP(3) NOT NULL, MODIFY locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", doctor.Warning},
		{"MODIFY lock_until DATETIME(6) NOT NULL, MODIFY locked_at DATETIME(6) NOT NULL", doctor.OK}, // as the migrations leave it
	} {
		db.Exec(t, "ALTER TABLE shedlock "+c.alter)
		r := doctor.NewReport(doctor.Options{Each: testkit.Patience})
		dbcheck.Examine(t.Context(), r, db.URL, false, dbcheck.Secrets{})
		for _, line := range r.Lines {
			if line.Check == dbcheck.CheckClock && (line.Status != c.want || strings.Contains(line.Found, "shedlock") != (c.want == doctor.Warning)) {
				t.Errorf("%s: %+v", c.alter, line)
			}
		}
	}
}
