package systemtest

import (
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// TestSettingsThatTiDBRefuses: a start with what TiDB can't do ends before the first migration, and says which setting to change. The
// doctor says the same.
func TestSettingsThatTiDBRefuses(t *testing.T) {
	testkit.OnlyOnTiDB(t)
	url := servertest.EmptyURL(t, servertest.TiDB)
	settings := map[string]string{
		"FIRSTTAP_DATABASE_URL": url, "FIRSTTAP_ADDR": "127.0.0.1:0", "FIRSTTAP_OPS_ADDR": "", "FIRSTTAP_ADMIN_KEY": AdminKey, "FIRSTTAP_JWT_SECRET": JWTSecret,
	}
	replica := strings.Replace(url, "127.0.0.1", "localhost", 1)
	for _, c := range []struct{ setting, value, refused, check, next string }{
		{"FIRSTTAP_JOB_LOCK", "named", "FIRSTTAP_JOB_LOCK: named does not work with TiDB", "jobs.lock", "set FIRSTTAP_JOB_LOCK to table or redis"},
		{"FIRSTTAP_JOB_LOCK", "rows", "FIRSTTAP_JOB_LOCK: rows does not work with TiDB", "jobs.lock", "set FIRSTTAP_JOB_LOCK to table or redis"},
		{"FIRSTTAP_DATABASE_READ_URL", replica, "leave FIRSTTAP_DATABASE_READ_URL unset", "replica.role", "leave FIRSTTAP_DATABASE_READ_URL unset"},
	} {
		lookup := func(name string) (string, bool) {
			if name == c.setting {
				return c.value, true
			}
			value, set := settings[name]
			return value, set
		}
		for _, args := range [][]string{{"serve"}, {"migrate", "up"}} {
			if args[0] == "migrate" && c.value == replica {
				continue // it reads nothing from a replica
			}
			if out, err := command(t, lookup, args...); err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v with %s=%s: %v\n%s", args, c.setting, c.value, err, out)
			}
		}
		examine(t, "FIRSTTAP_DATABASE_URL="+url, c.setting+"="+c.value).mustFail(t, c.check, "TiDB", c.next)
	}
	if n := OpenDatabase(t, url).Count("information_schema.tables WHERE table_schema = DATABASE()"); n != 0 {
		t.Errorf("%d tables were made", n)
	}
}
