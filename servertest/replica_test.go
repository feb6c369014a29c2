package servertest

import (
	"errors"
	"net/url"
	"testing"

	"firsttap/testkit"

	driver "github.com/go-sql-driver/mysql"
)

func TestMariaDBPair(t *testing.T) {
	p := StartMariaDBPair(t)
	u, err := url.Parse(p.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := StartProxy(t, p.Primary.Addr())
	at := func(addr string) string {
		password, _ := u.User.Password()
		c := config(u.User.Username(), password, addr, u.Path[1:])
		return c.FormatDSN()
	}
	old := open(t, at(proxy.Addr()))
	mustExec(t, old, "CREATE TABLE kept (id INT PRIMARY KEY)")
	mustExec(t, old, "INSERT INTO kept VALUES (1)")

	p.Demote()
	if _, err := old.Exec("INSERT INTO kept VALUES (2)"); !isReadOnly(err) {
		t.Errorf("a demoted server says %v", err)
	}
	p.Promote()
	proxy.Redirect(p.Replica.Addr())
	fresh := open(t, at(proxy.Addr()))
	mustExec(t, fresh, "INSERT INTO kept VALUES (3)")
	mustScan(t, fresh, "SELECT GROUP_CONCAT(id ORDER BY id) FROM kept", "1,3")
	mustScan(t, old, "SELECT GROUP_CONCAT(id ORDER BY id) FROM kept", "1") // its connection was not cut

	p.Reverse()
	testkit.Retry(t, func() error {
		var id int
		return old.QueryRow("SELECT id FROM kept WHERE id = 3").Scan(&id)
	})
}

func isReadOnly(err error) bool {
	var refused *driver.MySQLError
	return errors.As(err, &refused) && refused.Number == 1290
}
