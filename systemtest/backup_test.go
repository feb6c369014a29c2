package systemtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// A backup is restored with the commands of docs/database.md, into another database, while Redis knows a claim that the backup does not
// have. What the backup has counts as before. The lost claim is reported, and refuses nobody for good.
func TestRestoreOfABackup(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	server, redis := servertest.StartMariaDB(t), ownRedis(t)
	commands := backupCommands(t)
	before := server.URL(t)
	OpenDatabase(t, before).exec("CREATE USER firsttap")
	OpenDatabase(t, before).exec("GRANT ALL ON " + databaseOf(t, before) + ".* TO firsttap")
	before = strings.Replace(before, "root@", "firsttap@", 1)
	i := Start(t, redis, "FIRSTTAP_DATABASE_URL="+before)
	drivers := MakeDrivers(t, i, 3)
	kept, lost := MakeDispatch(t, i), MakeDispatch(t, i)
	a := mustWin(t, i, kept, drivers[0], 1)
	shell := clients(t, server)
	shell(commands["mariadb-dump"], databaseOf(t, before))
	mustWin(t, i, lost, drivers[1], 1)
	i.end()

	restored := strings.Replace(before, databaseOf(t, before), "restored", 1)
	shell(commands["mariadb -e"], "")
	shell(commands["mariadb restored"], "")
	i = Start(t, redis, "FIRSTTAP_DATABASE_URL="+restored, "FIRSTTAP_MIGRATE=off")
	if again := mustWin(t, i, kept, drivers[0], 1); !*again.Replayed || again.Claim.ID != a.Claim.ID {
		t.Errorf("the winner whom the backup knows got %s", again)
	}
	mustBeTaken(t, i, kept, drivers[1])
	db := OpenDatabase(t, restored)
	db.mustBeWonBy(kept, 1, drivers[0].ID, a.Claim.ID)
	var b Response
	testkit.Eventually(t, "a driver wins what nobody has won in the backup", func() bool {
		b = Accept(i, lost, drivers[2], 1)
		if !b.Won() && b.Code != "ALREADY_TAKEN" && b.status != 503 {
			t.Fatalf("while Redis has a claim that the backup does not have: %s", b)
		}
		return b.Won()
	})
	db.mustBeWonBy(lost, 1, drivers[2].ID, b.Claim.ID)
	alert := regexp.MustCompile(`ALERT: the database has lost a committed claim.*` + lost + `.*` + drivers[1].ID)
	testkit.Eventually(t, "an alert for the lost claim", func() bool { return alert.MatchString(i.log.String()) })
}

// backupCommands are the commands of the section, by their beginning.
func backupCommands(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/database.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, begin := range []string{"mariadb-dump", "mariadb -e", "mariadb restored"} {
		if found[begin] = regexp.MustCompile(`(?m)^` + begin + ` .*$`).FindString(string(text)); found[begin] == "" {
			t.Fatalf("docs/database.md has no command %q", begin)
		}
	}
	return found
}

// clients returns a function that runs a command whose clients find the server in ~/.my.cnf. The name of the database replaces firsttap.
func clients(t testing.TB, server *servertest.Database) func(command, database string) {
	t.Helper()
	home := t.TempDir()
	host, port, _ := strings.Cut(server.Addr(), ":")
	options := fmt.Sprintf("[client]\nprotocol=tcp\nhost=%s\nport=%s\nuser=root\n", host, port)
	if err := os.WriteFile(filepath.Join(home, ".my.cnf"), []byte(options), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(command, database string) {
		t.Helper()
		if database != "" {
			command = strings.Replace(command, " firsttap ", " "+database+" ", 1)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
		cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
}

func databaseOf(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}
