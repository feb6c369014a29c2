package dbcheck_test

import (
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/doctor"
	"firsttap/internal/doctor/dbcheck"
	"firsttap/internal/testkit"
	. "firsttap/repository/repositorytest"
)

// The doctor compares an instance's secrets with those in force.
func TestDoctorOnSecrets(t *testing.T) {
	EachServer(t, func(t *testing.T, db *Bench) {
		hash := func(letter string) string { return strings.Repeat(letter, 64) }
		own := dbcheck.Secrets{AdminKey: hash("b"), JWTName: "FIRSTTAP_JWT_SECRET", JWT: "two", PreviousJWT: "one"}
		mustSay := func(status doctor.Status, edit func(*dbcheck.Secrets), texts ...string) {
			t.Helper()
			r, s := doctor.NewReport(doctor.Options{Each: testkit.Patience}), own
			edit(&s)
			dbcheck.Examine(t.Context(), r, db.URL, true, s)
			line := r.Lines[len(r.Lines)-1]
			if line.Check != "database.secrets" || line.Status != status {
				t.Errorf("%+v, want %s", line, status)
			}
			for _, text := range texts {
				if !strings.Contains(line.Found, text) {
					t.Errorf("%q does not say %s", line.Found, text)
				}
			}
		}
		as := func(*dbcheck.Secrets) {}
		mustSay(doctor.OK, as)
		Must(t, db.EnsureKey(t.Context(), dispatch.Key{ID: dispatch.FirstKeyID, Role: dispatch.Admin, Hash: hash("a")}))
		Must(t, ErrorOf(db.UseSecret(t.Context(), own.JWTName, "one")))
		mustSay(doctor.Warning, as, "bbbbbbbbbbbb", "aaaaaaaaaaaa", "next start")
		Must(t, db.EnsureKey(t.Context(), dispatch.Key{ID: dispatch.FirstKeyID, Role: dispatch.Admin, Hash: hash("b")}))
		mustSay(doctor.OK, as) // the JWT secret in force is the previous one
		Must(t, ErrorOf(db.UseSecret(t.Context(), own.JWTName, "two")))
		mustSay(doctor.OK, as)
		mustSay(doctor.Fails, func(s *dbcheck.Secrets) { s.AdminKey = hash("a") }, "FIRSTTAP_ADMIN_KEY", "aaaaaaaaaaaa", "bbbbbbbbbbbb")
		mustSay(doctor.Fails, func(s *dbcheck.Secrets) { s.JWT = "one" }, "FIRSTTAP_JWT_SECRET", "one", "two", "was replaced")
		mustSay(doctor.Fails, func(s *dbcheck.Secrets) { s.JWT = "three" }, "FIRSTTAP_JWT_SECRET", "three", "two")
	})
}
