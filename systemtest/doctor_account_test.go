package systemtest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// TestDoctorOnAnAccount runs the statements of docs/operations.md: the limited account is enough, and the doctor sees each right that is
// missing or too much, and too few connections.
func TestDoctorOnAnAccount(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		block := 0
		if kind != servertest.MariaDB {
			block = 1
		}
		server := servertest.StartDatabase(t, kind)
		db := OpenDatabase(t, server.URL(t))
		for statement := range strings.SplitSeq(regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)[block][1], ";") {
			if strings.TrimSpace(statement) != "" {
				db.exec(statement)
			}
		}
		owner := "mysql://firsttap_owner:a-password@" + server.Addr() + "/firsttap"
		settings := testkit.Settings("FIRSTTAP_DATABASE_URL", owner, "FIRSTTAP_ADMIN_KEY", AdminKey, "FIRSTTAP_JWT_SECRET", JWTSecret)
		if out, err := command(t, settings, "migrate", "up"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		limited := []string{"FIRSTTAP_DATABASE_URL=mysql://firsttap:another-password@" + server.Addr() + "/firsttap", "FIRSTTAP_MIGRATE=off"}
		good := examine(t, limited...)
		good.mustBe(t, 0, "warning redis.connection", "warning firebase.push")
		if line := good.line("database.privileges"); !strings.HasPrefix(line, "ok ") {
			t.Error(line)
		}
		for _, right := range []string{"DELETE", "EXECUTE", "INSERT", "UPDATE"} {
			db.exec("REVOKE " + right + " ON firsttap.* FROM firsttap")
			examine(t, limited...).mustFail(t, "database.privileges", "may not "+right+" everywhere", "GRANT "+right+" ON firsttap.*")
			db.exec("GRANT " + right + " ON firsttap.* TO firsttap")
		}
		db.exec("GRANT SUPER ON *.* TO firsttap")
		if line := examine(t, limited...).line("database.privileges"); !strings.HasPrefix(line, "warning ") || !strings.Contains(line, "read-only server") {
			t.Error(line)
		}
		db.exec("REVOKE SUPER ON *.* FROM firsttap")
		for most, status := range map[string]string{"60": "fails ", "151": "warning ", "300": "ok "} {
			db.exec("SET GLOBAL max_connections = " + most)
			if line := examine(t, limited...).line("database.connections"); !strings.HasPrefix(line, status+"max_connections is "+most) {
				t.Error(line)
			}
		}
		db.exec("SET GLOBAL max_connections = 500")
		db.exec("ALTER USER firsttap WITH MAX_USER_CONNECTIONS 100")
		examine(t, limited...).mustFail(t, "database.connections", "max_user_connections is 100")
	})
}
