package locks

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/lock"

	"github.com/go-sql-driver/mysql"
)

// site has the servers' addresses, or those of proxies in front of them.
type site struct {
	redis [3]string // host:port each; all but the quorum use the first
	mysql *mysql.Config
}

// startSite starts the servers, with the tables that lock needs, until the test ends.
func startSite(t *testing.T) site {
	t.Helper()
	var s site
	for i := range s.redis {
		s.redis[i] = servertest.StartRedis(t).Addr()
	}
	maria := servertest.StartMariaDB(t)
	u, err := url.Parse(maria.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.mysql, err = mysql.ParseDSN(maria.DSN(strings.Trim(u.Path, "/"))); err != nil {
		t.Fatal(err)
	}
	s.mysql.InterpolateParams = true // like the product: one round trip per statement instead of three
	s.mysql.Logger = &mysql.NopLogger{}
	db := s.open(t)
	for _, statement := range lock.MySQL.Schema() {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// via is s with each server's address replaced by through's result.
func (s site) via(through func(addr string) string) site {
	for i, addr := range s.redis {
		s.redis[i] = through(addr)
	}
	s.mysql = s.mysql.Clone()
	s.mysql.Addr = through(s.mysql.Addr)
	return s
}

// open returns a pool for the database, until the test ends.
func (s site) open(t *testing.T) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(s.mysql)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(4)
	t.Cleanup(func() { db.Close() })
	return db
}
