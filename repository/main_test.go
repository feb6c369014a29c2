package repository

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/migrations"
	"firsttap/servertest"
	"firsttap/testkit"
)

func TestMain(m *testing.M) {
	// Tests mostly wait for a server.
	if err := flag.Lookup("test.parallel").Value.Set("6"); err != nil {
		panic(err)
	}
	os.Exit(servertest.Main(m))
}

// near reports whether the times are the same but for what a test may take.
func near(a, b time.Time) bool {
	return a.Before(b.Add(testkit.Patience)) && b.Before(a.Add(testkit.Patience))
}

var quiet = slog.New(slog.DiscardHandler)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// database is a Store over an empty schema, and a second way to the same database.
type database struct {
	*Store
	url string
	raw *sql.DB
}

// write inserts the rows, a slice. Each statement has a hundred of them: SQLite's driver compares each argument with each parameter.
func (db *database) write(t testing.TB, rows any) {
	t.Helper()
	must(t, db.decide.WithContext(t.Context()).CreateInBatches(rows, 100).Error)
}

// notOnTiDB skips the test on TiDB, which does not have what it needs.
func (db *database) notOnTiDB(t testing.TB, needs string) {
	t.Helper()
	if db.dialect.name == migrations.TiDB {
		t.Skip("TiDB has no " + needs)
	}
}

// each runs the test on each kind of database. The test runs in parallel with others.
func each(t *testing.T, test func(*testing.T, *database)) {
	t.Helper()
	on(t, servertest.Databases(), test)
}

// eachServer is each without SQLite.
func eachServer(t *testing.T, test func(*testing.T, *database)) {
	t.Helper()
	on(t, servertest.Servers(), test)
}

// every is each for what no kind of database takes over from another: how a claim is decided.
func every(t *testing.T, test func(*testing.T, *database)) {
	t.Helper()
	on(t, servertest.EveryDatabase(), test)
}

// everyServer is every without SQLite.
func everyServer(t *testing.T, test func(*testing.T, *database)) {
	t.Helper()
	on(t, servertest.EveryServer(), test)
}

func on(t *testing.T, kinds []string, test func(*testing.T, *database)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, kinds, func(t *testing.T, kind string) { test(t, pooled(t, kind)) })
}

// open returns a Store that ends with the test. It is patient, so that a busy machine does not look like a held row.
func open(t testing.TB, rawURL string) *Store {
	t.Helper()
	return openWith(t, rawURL, Options{Log: quiet, Patience: testkit.Patience, Retention: usualRetention})
}

// usualRetention keeps what only tests of their own prune.
var usualRetention = Retention{Attempts: 90 * day}

// usual is the database with a Store that waits for as long as an instance does.
func (db *database) usual(t testing.TB) *database {
	t.Helper()
	return db.by(openWith(t, db.url, Options{Log: quiet}))
}

// impatient is the database with a Store that gives up after some seconds, which are more than a busy machine stands still.
func (db *database) impatient(t testing.TB) *database {
	t.Helper()
	return db.by(openWith(t, db.url, Options{Log: quiet, Patience: 5 * time.Second}))
}

// by is the same database by way of another Store.
func (db *database) by(s *Store) *database {
	return &database{Store: s, url: db.url, raw: db.raw}
}

func openWith(t testing.TB, rawURL string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), rawURL, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// pooled is a migrated database of the pool.
func pooled(t testing.TB, kind string) *database {
	t.Helper()
	return databaseAt(t, servertest.Migrated(t, kind, migrate))
}

// migrated migrates the database at rawURL.
func migrated(t testing.TB, rawURL string) *database {
	t.Helper()
	migrate(t, rawURL)
	return databaseAt(t, rawURL)
}

func databaseAt(t testing.TB, rawURL string) *database {
	t.Helper()
	db := &database{Store: open(t, rawURL), url: rawURL, raw: direct(t, rawURL)}
	db.PrepareClaims(t.Context())
	return db
}

func migrate(t testing.TB, rawURL string) {
	t.Helper()
	s, err := Open(t.Context(), rawURL, Options{Log: quiet, Patience: testkit.Patience})
	must(t, err)
	must(t, s.up(t.Context()))
	s.PrepareClaims(t.Context()) // the schema is then as an instance leaves it, and the database can be used again
	must(t, s.Close())
}

// up applies all migrations.
func (s *Store) up(ctx context.Context) error {
	return s.Migrate(func(m *migrations.Migrator) error { return errorOf(m.Up(ctx)) })
}

// direct opens the database without the Store, and with the driver's own settings.
func direct(t testing.TB, rawURL string) *sql.DB {
	t.Helper()
	if path, ok := strings.CutPrefix(rawURL, "sqlite://"); ok {
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	u, err := url.Parse(rawURL)
	must(t, err)
	config := driver.NewConfig()
	config.Net, config.Addr, config.User = "tcp", u.Host, u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")
	config.InterpolateParams = true
	config.Logger = &driver.NopLogger{} // the tests break connections on purpose
	connector, err := driver.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// proxied is a second Store on the same database, as patient, by way of a proxy.
func (db *database) proxied(t testing.TB) (*Store, *servertest.Proxy) {
	t.Helper()
	u, err := url.Parse(db.url)
	must(t, err)
	p := servertest.StartProxy(t, u.Host)
	return openWith(t, p.URL(db.url), Options{Log: quiet, Patience: db.options.Patience}), p
}

// cutAll cuts the connections of the store, and keeps it from using an idle one of them afterwards: that may be cut during its next statement.
func cutAll(s *Store, p *servertest.Proxy) {
	for _, pool := range s.Pools() {
		pool.SetMaxIdleConns(0)
	}
	p.CutAll()
}

func (db *database) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := db.raw.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// count is the number of rows of a table, or of what follows FROM.
func (db *database) count(t testing.TB, from string, args ...any) int {
	t.Helper()
	var n int
	if err := db.raw.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+from, args...).Scan(&n); err != nil {
		t.Fatalf("count %s: %v", from, err)
	}
	return n
}

// mustCount fails the test unless the table, or what follows FROM, has so many rows.
func (db *database) mustCount(t testing.TB, want int, from string, args ...any) {
	t.Helper()
	if n := db.count(t, from, args...); n != want {
		t.Errorf("there are %d rows of %s, want %d", n, from, want)
	}
}

// begun is a transaction beside the Store that has executed the statements. It is undone when the test ends.
func (db *database) begun(t testing.TB, statements ...string) *sql.Tx {
	t.Helper()
	tx, err := db.raw.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	for _, s := range statements {
		if _, err := tx.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return tx
}

// mustHold fails the test unless the tables hold so many claims and events of that type, all to be expanded.
func (db *database) mustHold(t testing.TB, claims int, event dispatch.EventType, events int) {
	t.Helper()
	db.mustCount(t, claims, "claims")
	db.mustCount(t, events, "events WHERE type = ?", event)
	db.mustCount(t, events, "events WHERE type = ? AND next_at IS NOT NULL", event)
}

// someTerms are what every driver of someDriver is eligible for.
func someTerms(now time.Time) dispatch.Terms {
	return dispatch.Terms{
		Region: "seoul", VehicleClass: "scissor", Site: dispatch.Site{Address: "1 Sejong-daero"},
		WorkStartsAt: now.Add(time.Hour), WorkEndsAt: now.Add(2 * time.Hour),
		Fee: dispatch.Money{Amount: 350000, Currency: "KRW"},
	}
}

// add creates a dispatch that is open since a minute for nine more, as edit changes it.
func (db *database) add(t testing.TB, edit func(*dispatch.Dispatch)) dispatch.Dispatch {
	t.Helper()
	d, err := db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		w := dispatch.Window{OpensAt: now.Add(-time.Minute), ExpiresAt: now.Add(9 * time.Minute)}
		d, events := dispatch.New(dispatch.NewID(now), "", someTerms(now), w, dispatch.System, now)
		if edit != nil {
			edit(&d)
		}
		return d, events, nil
	})
	must(t, err)
	return d
}

func someDriver(i int) dispatch.Driver {
	now := time.Now()
	return dispatch.Driver{
		ID: dispatch.NewDriverID(now), Name: fmt.Sprintf("Driver %d", i), Phone: fmt.Sprintf("+8210%08d", i),
		Regions: []string{"seoul", "busan"}, VehicleClass: "scissor", Locale: "ko", OnDuty: true, Version: 1,
	}
}

// drivers adds n eligible drivers.
func (db *database) drivers(t testing.TB, n int) []dispatch.Driver {
	t.Helper()
	drivers := make([]dispatch.Driver, n)
	for i := range drivers {
		drivers[i] = someDriver(i)
	}
	must(t, db.AddDrivers(t.Context(), drivers))
	return drivers
}

// collect is what of says of each item.
func collect[T, V any](items []T, of func(T) V) []V {
	all := make([]V, len(items))
	for i, item := range items {
		all[i] = of(item)
	}
	return all
}

// rule is the domain's own, for a claim with an id of its own.
func rule(round int) claimRule {
	id := dispatch.NewClaimID(time.Now())
	return func(d *dispatch.Dispatch, c dispatch.Candidate, now time.Time) ([]dispatch.Event, error) {
		return d.Accept(c, round, id, now)
	}
}

// accept claims the dispatch in whichever round is current, by the domain's rule.
func (db *database) accept(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (dispatch.Dispatch, error) {
	return db.Claim(ctx, id, driver, rule(0))
}

func (db *database) mustAccept(t testing.TB, id dispatch.ID, driver dispatch.DriverID) dispatch.Dispatch {
	t.Helper()
	d, err := db.accept(t.Context(), id, driver)
	must(t, err)
	return d
}

// change is what an update does to a dispatch.
type change = func(*dispatch.Dispatch, time.Time) ([]dispatch.Event, error)

func (db *database) mustUpdate(t testing.TB, id dispatch.ID, do change) dispatch.Dispatch {
	t.Helper()
	d, err := db.Update(t.Context(), id, do)
	must(t, err)
	return d
}

func (db *database) mustRead(t testing.TB, id dispatch.ID) dispatch.Dispatch {
	t.Helper()
	d, err := db.Dispatch(t.Context(), id)
	must(t, err)
	return d
}

func cancel(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Cancel(d.Version, dispatch.System, "RAIN", now)
}

// touch changes nothing but the version.
func touch(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	d.Version++
	return []dispatch.Event{{ID: dispatch.NewEventID(now), Type: dispatch.EventUpdated, Dispatch: d.ID, ReasonCode: dispatch.ReasonExtended, At: now}}, nil
}

// The driver who has the dispatch starts the work, completes it, or withdraws.

func start(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Start(dispatch.Driver{ID: d.Claim.Driver}, now)
}

func complete(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Complete(d.Claim.Driver, now)
}

func withdraw(d *dispatch.Dispatch, now time.Time) ([]dispatch.Event, error) {
	return d.Withdraw(d.Claim.Driver, "SICK", now)
}
