package servertest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// Database is a MariaDB, MySQL or TiDB server process of the test's own. Its root user has no password. Commits
// survive Kill and Start: each waits for the disk.
type Database struct{ *server }

// StartMariaDB is StartDatabase of MariaDB.
func StartMariaDB(t testing.TB) *Database {
	t.Helper()
	return StartDatabase(t, mariadb)
}

// StartDatabase starts a MariaDB, or a MySQL of 8.0 or later, and returns when it answers. The server ends with the test. The program
// of MySQL is mysqld in the path, or the one in the system root that FIRSTTAP_MYSQL_ROOT names (/var/cache/firsttap/mysql), for systems
// that have MariaDB only.
func StartDatabase(t testing.TB, kind string) *Database {
	t.Helper()
	e, err := installed[kind]()
	require(t, kind, err)
	return &Database{startServer(t, databaseProgram(e))}
}

// URL creates an empty database and returns mysql://root@host:port/<its name>.
func (d *Database) URL(t testing.TB) string {
	t.Helper()
	name, err := createDatabase(d.config(""))
	if err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
	return (&url.URL{Scheme: "mysql", User: url.User("root"), Host: d.Addr(), Path: "/" + name}).String()
}

// DSN is go-sql-driver/mysql's data source name of the database, for root; times are parsed, in UTC.
func (d *Database) DSN(database string) string { return d.config(database).FormatDSN() }

func (d *Database) config(database string) *driver.Config {
	return config("root", "", d.Addr(), database)
}

func config(user, password, addr, database string) *driver.Config {
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName, c.ParseTime = user, password, "tcp", addr, database, true
	return c
}

// configOf leads to the server of the URL.
func configOf(u *url.URL) *driver.Config {
	password, _ := u.User.Password()
	return config(u.User.Username(), password, u.Host, "")
}

func databaseProgram(e engine) program {
	if e.name == tidb {
		return tidbProgram(e)
	}
	return program{
		name: e.name, probe: probeDatabase, host: e.host,
		prepare: func(s *server) error { return newDataDir(e, s.data()) },
		command: func(s *server) []string {
			// A killed server leaves its socket and the socket's lock behind.
			socket := filepath.Join(s.dir, fmt.Sprintf("s%d", time.Now().UnixNano()))
			if s.host != nil {
				s.host.door.Redirect(socket)
			}
			return slices.Concat(e.daemon, places(s.data(), s.dir), []string{
				"--port=" + strconv.Itoa(s.port),
				"--socket=" + socket, "--pid-file=" + filepath.Join(s.dir, "pid"),
			})
		},
	}
}

// data is a database server's data directory.
func (s *server) data() string { return filepath.Join(s.dir, "data") }

// probeDatabase compares the data directory, which tells the process from a stranger on the port.
func probeDatabase(ctx context.Context, s *server) error {
	const patience = 2 * time.Second
	c := config("root", "", s.Addr(), "")
	c.Timeout, c.ReadTimeout, c.WriteTimeout = patience, patience, patience
	c.Logger = &driver.NopLogger{} // it fails until the server is ready
	return withDatabase(c, func(db *sql.DB) error {
		var answer string
		err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&answer)
		if err == nil && filepath.Clean(answer) != s.data() {
			err = errStranger
		}
		return err
	})
}

// createDatabase creates an empty database on the server that c leads to and returns its name.
func createDatabase(c *driver.Config) (string, error) {
	name := "firsttap_" + strings.ToLower(rand.Text()[:12])
	return name, withDatabase(c, func(db *sql.DB) error {
		_, err := db.Exec("CREATE DATABASE " + name + " CHARACTER SET utf8mb4")
		return err
	})
}

func dropDatabase(c *driver.Config, name string) error {
	return withDatabase(c, func(db *sql.DB) error {
		_, err := db.Exec("DROP DATABASE IF EXISTS " + name)
		return err
	})
}

func withDatabase(c *driver.Config, do func(*sql.DB) error) error {
	connector, err := driver.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return do(db)
}
