package repositorytest

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"firsttap/repository"
	"firsttap/repository/board"
	"firsttap/repository/database"
	"firsttap/repository/devices"
	"firsttap/repository/dispatches"
	"firsttap/repository/drivers"
	"firsttap/repository/due"
	"firsttap/repository/export"
	"firsttap/repository/journal"
	"firsttap/repository/keys"
	"firsttap/repository/offers"
	"firsttap/repository/poll"
	"firsttap/repository/pushes"
	"firsttap/repository/retention"
	"firsttap/repository/runs"
	"firsttap/repository/topics"
	"firsttap/repository/webhooks"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/migrations"
)

// Main runs the tests of a package on servers of its own, and returns the exit code for TestMain.
func Main(m *testing.M) int {
	// Tests mostly wait for a server.
	if err := flag.Lookup("test.parallel").Value.Set("6"); err != nil {
		panic(err)
	}
	return servertest.Main(m)
}

// Near reports whether the times are the same but for what a test may take.
func Near(a, b time.Time) bool {
	return a.Before(b.Add(testkit.Patience)) && b.Before(a.Add(testkit.Patience))
}

// Quiet is a log that discards.
var Quiet = slog.New(slog.DiscardHandler)

// Must ends the test with an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rooms are those of a Store, with all their methods.
type rooms struct {
	*database.DB
	*board.Board
	*devices.Devices
	*dispatches.Dispatches
	*drivers.Drivers
	*due.Due
	*export.Export
	*journal.Journal
	*keys.Keys
	*offers.Offers
	*poll.Poll
	*pushes.Notifications
	*retention.Cleaner
	*runs.Runs
	*topics.Topics
	*webhooks.Webhooks
}

// Bench is a Store over an empty schema, and a second way to the same database.
type Bench struct {
	rooms
	Store *repository.Store
	URL   string
	Raw   *sql.DB
	// listener is called with what the Store announces, unless the options had a function of their own.
	listener atomic.Pointer[func(dispatch.Dispatch, []dispatch.Event)]
}

// Onto returns the Bench of a Store.
func Onto(s *repository.Store, url string, raw *sql.DB) *Bench {
	db := &Bench{URL: url, Raw: raw}
	db.Use(s)
	return db
}

// Use has the Bench go on with another Store.
func (db *Bench) Use(s *repository.Store) {
	db.Store, db.rooms = s, rooms{
		s.DB, s.Board, s.Devices, s.Dispatches, s.Drivers, s.Due, s.Export, s.Journal, s.Keys, s.Offers, s.Poll, s.Notifications, s.Cleaner,
		s.Runs, s.Topics, s.Webhooks,
	}
}

// Write inserts the rows, a slice. Each statement has a hundred of them: SQLite's driver compares each argument with each parameter.
func (db *Bench) Write(t testing.TB, rows any) {
	t.Helper()
	Must(t, db.Decide.With(t.Context()).CreateInBatches(rows, 100).Error)
}

// NotOnTiDB skips the test on TiDB, which does not have what it needs.
func (db *Bench) NotOnTiDB(t testing.TB, needs string) {
	t.Helper()
	if db.Dialect == migrations.TiDB {
		t.Skip("TiDB has no " + needs)
	}
}

// Each and the like run the test on kinds of databases: all, all but SQLite, and both together with those that take over from another kind
// all but how a claim is decided. The test runs in parallel with others.
var (
	Each        = each(servertest.Databases)
	EachServer  = each(servertest.Servers)
	Every       = each(servertest.EveryDatabase)
	EveryServer = each(servertest.EveryServer)
)

func each(kinds func() []string) func(*testing.T, func(*testing.T, *Bench)) {
	return func(t *testing.T, test func(*testing.T, *Bench)) {
		t.Helper()
		On(t, kinds(), test)
	}
}

// On runs the test on each of these kinds of databases. The test runs in parallel with others.
func On(t *testing.T, kinds []string, test func(*testing.T, *Bench)) {
	t.Helper()
	t.Parallel()
	servertest.OnEach(t, kinds, func(t *testing.T, kind string) { test(t, Pooled(t, kind)) })
}

// OpenPatient returns a Store that ends with the test. It is patient, so that a busy machine does not look like a held row.
func OpenPatient(t testing.TB, rawURL string) *repository.Store {
	t.Helper()
	return OpenWith(t, rawURL, repository.Options{Log: Quiet, Patience: testkit.Patience, Retention: UsualRetention})
}

// Day is a day.
const Day = 24 * time.Hour

// UsualRetention keeps what only tests of their own prune.
var UsualRetention = retention.Periods{Attempts: 90 * Day}

// Usual is the database with a Store that waits for as long as an instance does.
func (db *Bench) Usual(t testing.TB) *Bench {
	t.Helper()
	return db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet}))
}

// Impatient is the database with a Store that gives up after some seconds, which are more than a busy machine stands still.
func (db *Bench) Impatient(t testing.TB) *Bench {
	t.Helper()
	return db.By(OpenWith(t, db.URL, repository.Options{Log: Quiet, Patience: 5 * time.Second}))
}

// By is the same database by way of another Store.
func (db *Bench) By(s *repository.Store) *Bench { return Onto(s, db.URL, db.Raw) }

// With is the same database by way of another Store, as edit changes the usual options.
func (db *Bench) With(t testing.TB, edit func(*repository.Options)) *Bench {
	t.Helper()
	in := &Bench{URL: db.URL, Raw: db.Raw}
	o := repository.Options{Log: Quiet, Patience: testkit.Patience, Retention: UsualRetention, OnCommit: in.announce}
	edit(&o)
	in.Use(OpenWith(t, db.URL, o))
	return in
}

// ListenTo has fn called with what the Store announces.
func (db *Bench) ListenTo(fn func(dispatch.Dispatch, []dispatch.Event)) { db.listener.Store(&fn) }

func (db *Bench) announce(d dispatch.Dispatch, events []dispatch.Event) {
	if fn := db.listener.Load(); fn != nil {
		(*fn)(d, events)
	}
}

// Outbox is the outbox and the topics of one owner.
type Outbox struct {
	*pushes.Outbox
	*topics.Topics
}

// OpenWith returns a Store that ends with the test.
func OpenWith(t testing.TB, rawURL string, o repository.Options) *repository.Store {
	t.Helper()
	s, err := repository.Open(t.Context(), rawURL, o)
	Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// Pooled is a migrated database of the pool.
func Pooled(t testing.TB, kind string) *Bench {
	t.Helper()
	return DatabaseAt(t, servertest.Migrated(t, kind, Migrate))
}

// Migrated migrates the database at rawURL.
func Migrated(t testing.TB, rawURL string) *Bench {
	t.Helper()
	Migrate(t, rawURL)
	return DatabaseAt(t, rawURL)
}

// DatabaseAt returns the migrated database at rawURL.
func DatabaseAt(t testing.TB, rawURL string) *Bench {
	t.Helper()
	db := (&Bench{URL: rawURL, Raw: Direct(t, rawURL)}).With(t, func(*repository.Options) {})
	db.PrepareClaims(t.Context())
	return db
}

// Direct opens the database without the Store, and with the driver's own settings.
func Direct(t testing.TB, rawURL string) *sql.DB {
	t.Helper()
	if path, ok := strings.CutPrefix(rawURL, "sqlite://"); ok {
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
		Must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	u, err := url.Parse(rawURL)
	Must(t, err)
	config, err := driver.ParseDSN(fmt.Sprintf("%s@tcp(%s)%s?interpolateParams=true", u.User, u.Host, u.Path))
	Must(t, err)
	config.Logger = &driver.NopLogger{} // the tests break connections on purpose
	connector, err := driver.NewConnector(config)
	Must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// Proxied is a second Store on the same database, as patient, by way of a proxy.
func (db *Bench) Proxied(t testing.TB, edit ...func(*repository.Options)) (*repository.Store, *servertest.Proxy) {
	t.Helper()
	u, err := url.Parse(db.URL)
	Must(t, err)
	p := servertest.StartProxy(t, u.Host)
	o := repository.Options{Log: Quiet, Patience: db.Patience}
	for _, e := range edit {
		e(&o)
	}
	return OpenWith(t, p.URL(db.URL), o), p
}

// CutAll cuts the connections of the store, and keeps it from using an idle one of them afterwards: that may be cut during its next
// statement.
func CutAll(s *repository.Store, p *servertest.Proxy) {
	for _, pool := range s.Pools() {
		pool.SetMaxIdleConns(0)
	}
	p.CutAll()
}

// Exec executes a statement beside the Store.
func (db *Bench) Exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := db.Raw.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Count is the number of rows of a table, or of what follows FROM.
func (db *Bench) Count(t testing.TB, from string, args ...any) int {
	t.Helper()
	var n int
	if err := db.Raw.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+from, args...).Scan(&n); err != nil {
		t.Fatalf("count %s: %v", from, err)
	}
	return n
}

// MustCount fails the test unless the table, or what follows FROM, has so many rows.
func (db *Bench) MustCount(t testing.TB, want int, from string, args ...any) {
	t.Helper()
	if n := db.Count(t, from, args...); n != want {
		t.Errorf("there are %d rows of %s, want %d", n, from, want)
	}
}

// Begun is a transaction beside the Store that has executed the statements. It is undone when the test ends.
func (db *Bench) Begun(t testing.TB, statements ...string) *sql.Tx {
	t.Helper()
	tx, err := db.Raw.BeginTx(t.Context(), nil)
	Must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	for _, s := range statements {
		if _, err := tx.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return tx
}

// MustHold fails the test unless the tables hold so many claims and events of that type, all to be expanded.
func (db *Bench) MustHold(t testing.TB, claims int, event dispatch.EventType, events int) {
	t.Helper()
	db.MustCount(t, claims, "claims")
	db.MustCount(t, events, "events WHERE type = ?", event)
	db.MustCount(t, events, "events WHERE type = ? AND next_at IS NOT NULL", event)
}

// SomeTerms are what every driver of someDriver is eligible for.
func SomeTerms(now time.Time) dispatch.Terms {
	return dispatch.Terms{
		Region: "seoul", VehicleClass: "scissor", Site: dispatch.Site{Address: "1 Sejong-daero"},
		WorkStartsAt: now.Add(time.Hour), WorkEndsAt: now.Add(2 * time.Hour),
		Fee: dispatch.Money{Amount: 350000, Currency: "KRW"},
	}
}

// Add creates a dispatch that is open since a minute for nine more, as edit changes it.
func (db *Bench) Add(t testing.TB, edit func(*dispatch.Dispatch)) dispatch.Dispatch {
	t.Helper()
	d, err := db.Create(t.Context(), func(now time.Time) (dispatch.Dispatch, []dispatch.Event, error) {
		w := dispatch.Window{OpensAt: now.Add(-time.Minute), ExpiresAt: now.Add(9 * time.Minute)}
		d, events := dispatch.New(dispatch.NewID(now), "", SomeTerms(now), w, dispatch.System, now)
		if edit != nil {
			edit(&d)
		}
		return d, events, nil
	})
	Must(t, err)
	return d
}

// Collect is what of says of each item.
func Collect[T, V any](items []T, of func(T) V) []V {
	all := make([]V, len(items))
	for i, item := range items {
		all[i] = of(item)
	}
	return all
}

// ErrorOf is the error of a call that has a result.
func ErrorOf[T any](_ T, err error) error { return err }

// MustBeError fails the test unless the error is that one, and no other of the kinds of answers.
func MustBeError(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
	// "No", "busy" and "don't know" are three.
	for _, other := range []error{dispatch.ErrUnavailable, dispatch.ErrUnknown} {
		if !errors.Is(want, other) && errors.Is(got, other) {
			t.Errorf("%s: %v is %v too", what, got, other)
		}
	}
}
