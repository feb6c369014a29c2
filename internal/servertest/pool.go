package servertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// Migrated is a database of the test's own with a schema that migrate made, and no rows but those that migrate wrote. Kind is
// "sqlite", "mariadb", "mysql" or "tidb", all but the first on the server of EmptyURL.
//
// A test that ends gives its database back, and a later test of the same process gets it emptied. It is dropped if the test
// has changed the schema. So migrate runs only while there are fewer databases than tests that run at the same time, and
// every call in a process has to pass the same migrate. SQLite's file is a copy of one that was migrated.
func Migrated(t testing.TB, kind string, migrate func(t testing.TB, url string)) string {
	t.Helper()
	if kind == "sqlite" {
		return migratedFile(t, migrate)
	}
	server := parsed(t, serverURL(t, kind))
	p := takePooled(server.Host)
	if p == nil {
		p = newPooled(t, kind, server, migrate)
	}
	t.Cleanup(func() {
		if err := p.empty(); err == nil {
			p.giveBack()
		} else if err := dropDatabase(p.config, p.name); err != nil {
			t.Errorf("%s at %s: drop the test's database: %v", kind, server.Host, err)
		}
	})
	server.Path = "/" + p.name
	return server.String()
}

// pooled is a migrated database.
type pooled struct {
	config *driver.Config // without the database's name
	name   string
	schema string   // as the migrations left it
	tables []string // that the migrations left empty
	seeds  string   // the rows of the others
	seeded []string
	clear  string // the statement that empties a table, without its name
}

// The databases that no test uses, by server.
var (
	poolMu sync.Mutex
	pool   = map[string][]*pooled{}
)

func takePooled(server string) *pooled {
	poolMu.Lock()
	defer poolMu.Unlock()
	free := pool[server]
	if len(free) == 0 {
		return nil
	}
	pool[server] = free[:len(free)-1]
	return free[len(free)-1]
}

// dropPool drops the databases that no test uses.
func dropPool() {
	poolMu.Lock()
	defer poolMu.Unlock()
	for _, free := range pool {
		for _, p := range free {
			_ = dropDatabase(p.config, p.name) // a server that this process started ends anyway
		}
	}
	clear(pool)
}

func (p *pooled) giveBack() {
	poolMu.Lock()
	defer poolMu.Unlock()
	pool[p.config.Addr] = append(pool[p.config.Addr], p)
}

// newPooled makes a database.
func newPooled(t testing.TB, kind string, server *url.URL, migrate func(t testing.TB, url string)) *pooled {
	t.Helper()
	p := &pooled{config: configOf(server), clear: "TRUNCATE TABLE "} // unlike DELETE it resets AUTO_INCREMENT and the statistics
	if kind == tidb {
		p.clear = "DELETE FROM " // all changes of definitions wait for each other
	}
	var err error
	if p.name, err = createDatabase(p.config); err != nil {
		t.Fatalf("%s: %v", server.Host, err)
	}
	u := *server
	u.Path = "/" + p.name
	migrate(t, u.String())
	err = p.with(func(ctx context.Context, c *sql.Conn) error {
		if p.schema, err = schemaOf(ctx, c); err != nil {
			return err
		}
		tables, err := column(ctx, c, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1")
		if err != nil {
			return err
		}
		rows, err := nonEmpty(ctx, c, tables)
		if err != nil {
			return err
		}
		for _, name := range tables {
			if rows[name] {
				p.seeded = append(p.seeded, name)
			} else {
				p.tables = append(p.tables, name)
			}
		}
		p.seeds, err = rowsIn(ctx, c, p.seeded)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", server.Host, err)
	}
	return p
}

var errChanged = errors.New("the test has changed what the migrations made")

// empty deletes what the test wrote. It fails if the database is not as it was, or if a session of the test still locks it.
func (p *pooled) empty() error {
	return p.with(func(ctx context.Context, c *sql.Conn) error {
		if schema, err := schemaOf(ctx, c); err != nil || schema != p.schema {
			return errors.Join(err, errChanged)
		}
		if seeds, err := rowsIn(ctx, c, p.seeded); err != nil || seeds != p.seeds {
			return errors.Join(err, errChanged)
		}
		rows, err := nonEmpty(ctx, c, p.tables)
		if err != nil {
			return err
		}
		for name := range rows {
			if _, err := c.ExecContext(ctx, p.clear+name); err != nil {
				return err
			}
		}
		return nil
	})
}

// with runs do on a connection to the database.
func (p *pooled) with(do func(context.Context, *sql.Conn) error) error {
	c := p.config.Clone()
	c.DBName = p.name
	return withDatabase(c, func(db *sql.DB) error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 3, SESSION innodb_lock_wait_timeout = 3, "+
			"SESSION foreign_key_checks = 0"); err != nil {
			return err
		}
		return do(ctx, conn)
	})
}

// countsOn is what SHOW CREATE TABLE says of a table's rows.
var countsOn = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// schemaOf describes all columns, indexes, constraints, triggers and routines of the connection's database. Servers take several times as
// long to answer from information_schema what SHOW CREATE TABLE says.
func schemaOf(ctx context.Context, c *sql.Conn) (string, error) {
	var schema strings.Builder
	tables, err := column(ctx, c, "SHOW TABLES")
	if err != nil {
		return "", err
	}
	for _, name := range tables {
		rows, err := rowsOf(ctx, c, "SHOW CREATE TABLE `"+name+"`")
		if err != nil {
			return "", err
		}
		schema.WriteString(countsOn.ReplaceAllString(rows[0][1], "") + "\n\n")
	}
	triggers, err := rowsOf(ctx, c, "SHOW TRIGGERS")
	if err != nil {
		return "", err
	}
	for _, row := range triggers {
		fmt.Fprintln(&schema, row[:5]) // the later columns name the maker and the time
	}
	routines, err := rowsOf(ctx, c, `SELECT routine_type, routine_name, security_type, sql_data_access, routine_definition
		FROM information_schema.routines WHERE routine_schema = DATABASE() ORDER BY 1, 2`)
	fmt.Fprintln(&schema, routines)
	return schema.String(), err
}

// nonEmpty returns which of the tables have rows.
func nonEmpty(ctx context.Context, c *sql.Conn, tables []string) (map[string]bool, error) {
	found := map[string]bool{}
	var each []string
	for _, name := range tables {
		each = append(each, fmt.Sprintf("SELECT '%s' FROM DUAL WHERE EXISTS (SELECT 1 FROM %s)", name, name))
	}
	if len(each) == 0 {
		return found, nil
	}
	names, err := column(ctx, c, strings.Join(each, " UNION ALL "))
	for _, name := range names {
		found[name] = true
	}
	return found, err
}

// rowsIn returns all rows of the tables, which are few.
func rowsIn(ctx context.Context, c *sql.Conn, tables []string) (string, error) {
	var all strings.Builder
	for _, name := range tables {
		rows, err := rowsOf(ctx, c, "SELECT * FROM "+name+" ORDER BY 1")
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&all, name, rows)
	}
	return all.String(), nil
}

// column returns the first column of a query's result.
func column(ctx context.Context, c *sql.Conn, query string) (all []string, err error) {
	rows, err := rowsOf(ctx, c, query)
	for _, row := range rows {
		all = append(all, row[0])
	}
	return all, err
}

// rowsOf returns a query's result as text; NULL is empty.
func rowsOf(ctx context.Context, c *sql.Conn, query string) (all [][]string, err error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = v.String
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// The migrated SQLite file that tests copy, made on first use.
var (
	fileMu sync.Mutex
	file   []byte
)

// migratedFile copies the file that migrate has filled.
func migratedFile(t testing.TB, migrate func(t testing.TB, url string)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	fileMu.Lock()
	defer fileMu.Unlock()
	if file == nil {
		template := filepath.Join(t.TempDir(), "template.db")
		migrate(t, "sqlite://"+template)
		var err error
		if file, err = os.ReadFile(template); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite://" + path
}
