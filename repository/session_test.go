package repository_test

import (
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/database"
	. "firsttap/repository/repositorytest"
)

// hostile are a server's settings with which statements would do, store or answer something else; for MySQL without what only MariaDB has.
var hostile = map[string]string{
	"autocommit": "0", "completion_type": "2", "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT'",
	"innodb_lock_wait_timeout": "77", "lock_wait_timeout": "7", "wait_timeout": "5", "net_write_timeout": "1", "net_read_timeout": "1",
	"time_zone": "'-11:00'", "unique_checks": "0", "foreign_key_checks": "0", "sql_safe_updates": "1", "sql_select_limit": "1",
	"max_join_size": "1", "sql_big_selects": "0", "max_sort_length": "64", "default_storage_engine": "'MyISAM'",
	"sql_auto_is_null": "1", "collation_connection": "'latin1_swedish_ci'",
	"tx_isolation": "'SERIALIZABLE'", "tx_read_only": "1", "max_statement_time": "1.5",
	"idle_transaction_timeout": "1", "idle_write_transaction_timeout": "1", "idle_readonly_transaction_timeout": "1",
	"transaction_isolation": "'SERIALIZABLE'", "transaction_read_only": "1", "max_execution_time": "1",
}

// hostileServer has a database whose user has no privilege but for it. variables are those of hostile that the server knows.
func hostileServer(t *testing.T, kind string) (rawURL string, variables []string) {
	t.Helper()
	server := servertest.StartDatabase(t, kind)
	u, err := url.Parse(server.URL(t))
	Must(t, err)
	root := Direct(t, u.String())
	for _, s := range []string{
		"CREATE USER app@'%' IDENTIFIED BY 'pw'", "GRANT ALL ON " + strings.TrimPrefix(u.Path, "/") + ".* TO app@'%'",
		"SET GLOBAL init_connect = 'SET NAMES latin1'",
	} {
		Must(t, ErrorOf(root.Exec(s)))
	}
	for name, value := range hostile {
		switch _, err := root.Exec("SET GLOBAL " + name + " = " + value); {
		case kind == servertest.TiDB && name == "max_statement_time": // it has no effect there
		case database.IsServerError(err, 1193), err != nil && kind == servertest.TiDB: // it is unknown to this kind of server, or has no such value there
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		default:
			variables = append(variables, name)
		}
	}
	u.User = url.UserPassword("app", "pw")
	return u.String(), variables
}

// Whatever the server's settings are, each session of each pool has its own, and migrations, claims, texts and lists are right.
func TestSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		rawURL, variables := hostileServer(t, kind)
		sent := &Watched{}
		s := OpenWith(t, rawURL, repository.Options{Log: Quiet, Patience: testkit.Patience, Observer: sent.Watch})
		Must(t, Up(t.Context(), s))
		Must(t, s.Migrate(func(m *migrations.Migrator) error { return ErrorOf(m.Down(t.Context())) }))
		Must(t, Up(t.Context(), s))
		s.Dispatches.PrepareClaims(t.Context())
		jobs, _, err := database.OpenPool(rawURL, 1)
		Must(t, err)
		defer jobs.Close()
		pools := map[string]*sql.DB{"jobs": jobs}
		for name, pool := range s.Pools() {
			pools[name] = pool
		}
		for pool, db := range pools {
			mustSetAll(t, pool, db, variables)
		}
		var tables int
		Must(t, jobs.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB'").Scan(&tables))
		testkit.Equal(t, "tables without transactions", 0, tables)

		db := Onto(s, rawURL, nil)
		korean, emoji := strings.Repeat("가", 500), `🚧 "C:\" || '12'`
		first, second := db.AddDriver(t, func(v *dispatch.Driver) { v.Name = emoji }), db.AddDriver(t, func(*dispatch.Driver) {})
		d := db.Add(t, func(d *dispatch.Dispatch) { d.Site.Address, d.Note = korean, emoji })
		db.Add(t, nil)
		page, _, err := s.Dispatches.List(t.Context(), dispatch.Query{Page: dispatch.Page{Limit: 10}})
		Must(t, err)
		testkit.Equal(t, "dispatches", 2, len(page))
		sent.Take()
		won := db.MustAccept(t, d.ID, first.ID)
		if said := sent.Take(); kind != servertest.TiDB && !slices.Contains(said, "decide call") {
			t.Errorf("a claim is written without the procedure: %v", said)
		}
		db.MustStore(t, won)
		testkit.Equal(t, "address", korean, won.Site.Address)
		testkit.Equal(t, "note", emoji, won.Note)
		if _, err := db.Accept(t.Context(), d.ID, second.ID); !errors.Is(err, dispatch.ErrAlreadyTaken) {
			t.Errorf("a second claim: %v", err)
		}
		stored, err := s.Drivers.Driver(t.Context(), first.ID)
		Must(t, err)
		testkit.Equal(t, "name", emoji, stored.Name)
	})
}

// mustSetAll fails the test unless the pool's sessions have other values than the server.
func mustSetAll(t *testing.T, pool string, db *sql.DB, variables []string) {
	t.Helper()
	for _, name := range variables {
		var own, servers string
		Must(t, db.QueryRow("SELECT CONCAT(@@SESSION."+name+"), CONCAT(@@GLOBAL."+name+")").Scan(&own, &servers))
		if own == servers {
			t.Errorf("%s: %s is the server's %s", pool, name, own)
		}
	}
	var charset string
	Must(t, db.QueryRow("SELECT CONCAT(@@character_set_client, @@character_set_connection, @@character_set_results)").Scan(&charset))
	testkit.Equal(t, pool+": the character set", strings.Repeat("utf8mb4", 3), charset)
}
