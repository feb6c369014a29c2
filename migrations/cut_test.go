package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

var errGone = errors.New("the process is gone")

// scissors cut a process off from its database, once before each statement that changes something and once between its
// execution and its reply.
type scissors struct {
	mu   sync.Mutex
	done map[string]bool // the cuts that were made
	// everywhere has a statement that changes something cut anew at each of its places in the migrations' order.
	everywhere bool
	// reads has the other statements cut, too.
	reads bool
	place string          // the last note in the journal that was sent: where the migrations are
	cut   map[string]bool // the statements that were cut
	conns []net.Conn
	gone  bool
	stop  context.CancelFunc
	// skip is how many statements are let through first.
	skip int
}

// process begins a process that has not been cut off yet.
func (s *scissors) process(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns, s.gone, s.stop = nil, false, stop
	return ctx
}

func (s *scissors) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		conn.Close()
		return nil, errGone
	}
	s.conns = append(s.conns, conn)
	return &cutConn{Conn: conn, s: s}, nil
}

// end is called with mu held.
func (s *scissors) end() {
	s.gone = true
	for _, conn := range s.conns {
		conn.Close()
	}
	s.stop()
}

type cutConn struct {
	net.Conn
	s *scissors
	// replied ends the process when the reply is there.
	replied bool
}

var onlyReads = regexp.MustCompile(`^(SELECT|SHOW|SET|DO) `)

// queryIn returns the statement in a packet.
func queryIn(packet []byte) (statement string, ok bool) {
	const query = 3
	if len(packet) <= 5 || packet[3] != 0 || packet[4] != query {
		return "", false
	}
	return string(packet[5:]), true
}

// change returns the statement in a packet if it changes something.
func change(packet []byte) (statement string, ok bool) {
	statement, ok = queryIn(packet)
	return statement, ok && !onlyReads.MatchString(statement)
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.gone {
		return 0, errGone
	}
	statement, ok := queryIn(b)
	_, changes := change(b)
	if ok && (changes || c.s.reads) {
		before, after := " before "+statement, " after "+statement
		if c.s.everywhere && changes {
			before, after = c.s.place+before, c.s.place+after
		}
		c.s.skip--
		switch {
		case c.s.skip >= 0:
		case !c.s.done[before]:
			c.s.done[before], c.s.cut[statement] = true, true
			c.s.end()
			return 0, errGone
		case !c.s.done[after]:
			c.s.done[after], c.replied = true, true
		}
		if strings.HasPrefix(statement, "INSERT INTO migration_progress") || strings.HasPrefix(statement, "UPDATE migration_progress") {
			c.s.place = statement
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.replied {
		c.s.end()
	}
	if c.s.gone {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func configOf(t *testing.T, rawURL string) *driver.Config {
	t.Helper()
	u, err := url.Parse(rawURL)
	must(t, err)
	config := driver.NewConfig()
	config.Net, config.Addr, config.User, config.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
	config.Passwd, _ = u.User.Password()
	config.ParseTime, config.InterpolateParams = true, true
	config.Logger = &driver.NopLogger{}
	return config
}

// openServer opens a database of a server until the test ends.
func openServer(t *testing.T, rawURL string) *sql.DB {
	t.Helper()
	return openConfig(t, configOf(t, rawURL))
}

func openConfig(t *testing.T, config *driver.Config) *sql.DB {
	t.Helper()
	connector, err := driver.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ends repeats op, each time by a process that is cut off at the next place, until one was not cut off. It returns how
// many were.
func (s *scissors) ends(t *testing.T, rawURL, what string, op func(context.Context, *migrations.Migrator) error) (cuts int) {
	t.Helper()
	for {
		ctx := s.process(t.Context())
		config := configOf(t, rawURL)
		config.DialFunc = s.dial
		db := openConfig(t, config)
		err := op(ctx, mysqlMigrator(t, db, silent).Journaled())
		db.Close()
		s.mu.Lock()
		gone := s.gone
		s.mu.Unlock()
		s.stop()
		if !gone && err != nil {
			t.Fatalf("%s does not go on after %d cuts: %v", what, cuts, err)
		}
		if !gone {
			return cuts
		}
		cuts++
	}
}

// anyCounter matches the part of a definition that rows change.
var anyCounter = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// content is every table's definition and rows, but for when a migration was applied.
func content(t *testing.T, db *sql.DB) string {
	t.Helper()
	var out bytes.Buffer
	for _, table := range texts(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name") {
		var name, definition string
		must(t, db.QueryRow("SHOW CREATE TABLE "+table).Scan(&name, &definition))
		fmt.Fprintln(&out, anyCounter.ReplaceAllString(definition, ""))
		columns := strings.Join(texts(t, db, "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '"+
			table+"' AND column_name NOT IN ('tstamp') AND extra NOT LIKE '%auto_increment%' ORDER BY ordinal_position"), "`, '|', `")
		rows := texts(t, db, "SELECT CONCAT_WS('|', `"+strings.ReplaceAll(columns, "'|', ", "")+"`) FROM "+table)
		slices.Sort(rows)
		fmt.Fprintln(&out, strings.Join(rows, "\n"))
	}
	return out.String()
}

func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var s string
		must(t, rows.Scan(&s))
		all = append(all, s)
	}
	must(t, rows.Err())
	return all
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func up(ctx context.Context, m *migrations.Migrator) error { _, err := m.Up(ctx); return err }

func down(ctx context.Context, m *migrations.Migrator) error { _, err := m.Down(ctx); return err }

// onServers runs the test once for each kind of server, beside other tests.
func onServers(t *testing.T, test func(t *testing.T, newURL func() string)) {
	t.Parallel()
	servertest.OnEach(t, servertest.Servers(), func(t *testing.T, kind string) {
		t.Parallel()
		test(t, func() string { return servertest.EmptyURL(t, kind) })
	})
}

// The version at which outbox has tasks, which the next one deletes.
const withTasks = 4

// Wherever a process is cut off, the next one ends where an undisturbed one does. `make test` cuts at each statement, and `make
// test-all` also at each change at each of its places, for a journal that is at one of them.
func TestCutAtEveryStatement(t *testing.T) {
	notOnTiDB(t, "its files are not MySQL's, and a cut at each of their statements was not tried")
	onServers(t, func(t *testing.T, newURL func() string) {
		calm, cut := newURL(), newURL()
		calmDB, cutDB := openServer(t, calm), openServer(t, cut)
		s := &scissors{done: map[string]bool{}, cut: map[string]bool{}, everywhere: testkit.All(), reads: true}
		cuts := 0
		do := func(what string, op func(context.Context, *migrations.Migrator, *sql.DB) error) {
			t.Helper()
			must(t, op(t.Context(), mysqlMigrator(t, calmDB, silent), calmDB))
			if s.everywhere {
				clear(s.done)
			}
			cuts += s.ends(t, cut, what, func(ctx context.Context, m *migrations.Migrator) error { return op(ctx, m, cutDB) })
			if got, want := content(t, cutDB), content(t, calmDB); got != want {
				t.Fatalf("%s, cut off everywhere, ends with\n%s\nand undisturbed with\n%s", what, got, want)
			}
		}
		upAgain := func() {
			t.Helper()
			do("up", func(ctx context.Context, m *migrations.Migrator, _ *sql.DB) error { return up(ctx, m) })
		}
		downFrom := func(version, to int) {
			t.Helper()
			for v := version; v > to; v-- {
				do(fmt.Sprintf("down from %d", v), func(ctx context.Context, m *migrations.Migrator, db *sql.DB) error {
					// A client that repeats a command after a lost reply first checks whether it was done.
					if texts(t, db, "SELECT MAX(version_id) FROM goose_db_version")[0] != strconv.Itoa(v) {
						return nil
					}
					return down(ctx, m)
				})
			}
		}
		seed := func(statements ...string) {
			t.Helper()
			execute(t, calmDB, statements...)
			execute(t, cutDB, statements...)
		}
		upAgain()
		seed("INSERT INTO taps (dispatch_id, round, driver_id, result, id, at, last_at, count, instance, app_version) VALUES ('d', 1, 'x', 'WON', 'a', 1, 1, 1, 'i', '')",
			"INSERT INTO offers (dispatch_id, round, driver_id, seen_at, decline_reason) VALUES ('d', 1, 'x', 5, 'FAR')",
			"INSERT INTO events (id, dispatch_id, type, round, actor, reason_code, at, request_id) VALUES ('e', 'd', 'dispatch.opened', 1, 's', '', 7, 'r')")
		downFrom(newest, withTasks)
		seed("INSERT INTO outbox (event_id, task, state, next_at) VALUES ('e', 'event', 0, 1), ('e', 'expiry', 0, 2), ('f', 'event', 1, 3)")
		upAgain()
		downFrom(newest, 0)
		for _, f := range files(t, "mysql/*.sql") {
			for _, statement := range slices.Concat(f.up, f.down) {
				if !s.cut[statement] {
					t.Errorf("was not cut: %s", statement)
				}
			}
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.cut)), onlyReads.MatchString) {
			t.Error("no statement that only reads was cut")
		}
		t.Logf("%d cuts tried at %d different statements, all ended", cuts, len(s.cut))
	})
}

// file is a migration's statements.
type file struct{ up, down []string }

func files(t *testing.T, pattern string) (all []file) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		first, second, _ := strings.Cut(string(text), "-- +goose Down")
		all = append(all, file{statementsIn(first), statementsIn(second)})
	}
	return all
}

var comments = regexp.MustCompile(`^(\s*--[^\n]*\n|\s*\n)*`)

// statementsIn are the statements of a text, comments before them left out.
func statementsIn(text string) (all []string) {
	for part := range strings.SplitAfterSeq(text, ";\n") {
		if part = strings.TrimSpace(comments.ReplaceAllString(part, "")); part != "" {
			all = append(all, part)
		}
	}
	return all
}
