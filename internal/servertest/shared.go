package servertest

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"firsttap/internal/testkit"
)

// RedisURL is a Redis that tests share and must not break: the one in FIRSTTAP_TEST_REDIS_URL, or one that this process
// started. Other tests' keys are there too.
func RedisURL(t testing.TB) string {
	t.Helper()
	return serverURL(t, "redis")
}

// Main runs the tests, ends the servers that they shared, and returns the exit code. It fails when the tests pass and
// leave goroutines that no option allows. The TestMain of a package that uses RedisURL, EmptyURL or Migrated is
//
//	func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
//
// A test that looks for leaked goroutines itself ignores those of the shared servers with goleak.IgnoreCurrent, after its
// first use of a server.
func Main(m *testing.M, options ...goleak.Option) int {
	code := m.Run()
	dropPool()
	endShared()
	if code != 0 {
		return code
	}
	if err := goleak.Find(options...); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		return 1
	}
	return 0
}

// The servers that this process shares: started once, on first use, and ended by Main.
var (
	shared = map[string]func() (*server, error){
		"redis": sync.OnceValues(func() (*server, error) { return share(redisProgram(nil, func(*server) []string { return nil })) }),
		mariadb: sync.OnceValues(func() (*server, error) { return shareDatabase(mariadb) }),
		mysql:   sync.OnceValues(func() (*server, error) { return shareDatabase(mysql) }),
		tidb:    sync.OnceValues(func() (*server, error) { return shareDatabase(tidb) }),
	}
	runningMu sync.Mutex
	running   []*server
)

func shareDatabase(kind string) (*server, error) {
	e, err := installed[kind]()
	if err != nil {
		return nil, err
	}
	if kind != tidb {
		e.daemon = slices.Concat(e.daemon, []string{"--innodb-buffer-pool-size=256M", "--max-connections=2000"}) // for many tests
	}
	return share(databaseProgram(e))
}

func share(p program) (*server, error) {
	s, err := newServer(p)
	if err != nil {
		return nil, err
	}
	runningMu.Lock()
	defer runningMu.Unlock()
	running = append(running, s)
	return s, nil
}

func endShared() {
	runningMu.Lock()
	defer runningMu.Unlock()
	for _, s := range running {
		s.end()
	}
	running = nil
}

// StartShared starts the servers that all test processes of a run share: Redis, MariaDB and MySQL, those that are installed, and TiDB in
// `make tidb`.
// The variables in environ lead RedisURL, EmptyURL and Migrated of these processes to the servers. end ends them.
func StartShared() (environ []string, end func(), err error) {
	defer func() {
		if err != nil {
			endShared()
		}
	}()
	for kind, start := range shared {
		if missing(kind) != nil || kind == tidb && !testkit.TiDB() {
			continue
		}
		server, err := start()
		if err != nil {
			return nil, nil, err
		}
		environ = append(environ, environmentOf(kind)+"="+urlOf(server))
	}
	return environ, endShared, nil
}

// environmentOf is the variable with the URL of a shared server.
func environmentOf(kind string) string { return "FIRSTTAP_TEST_" + strings.ToUpper(kind) + "_URL" }

// missing says why there is no server of the kind.
func missing(kind string) error {
	if kind == "redis" {
		return redisInstalled()
	}
	_, err := installed[kind]()
	return err
}

// serverURL is the server in the environment, or else the shared one.
func serverURL(t testing.TB, kind string) string {
	t.Helper()
	if server := os.Getenv(environmentOf(kind)); server != "" {
		return server
	}
	require(t, kind, missing(kind))
	server, err := shared[kind]()
	if err != nil {
		t.Fatal(err)
	}
	return urlOf(server)
}

// urlOf is the URL of a Redis, or of a database server's root.
func urlOf(s *server) string {
	if s.name == "redis" {
		return "redis://" + s.Addr()
	}
	return "mysql://root@" + s.Addr()
}

func parsed(t testing.TB, rawURL string) *url.URL {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// freshDatabase creates a database on the server that the environment names, or else on the shared one. It returns the
// database's URL, and drops the database with the test.
func freshDatabase(t testing.TB, name string) string {
	t.Helper()
	u := parsed(t, serverURL(t, name))
	c := configOf(u)
	database, err := createDatabase(c)
	if err != nil {
		t.Fatalf("%s at %s: %v", name, u.Host, err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(c, database); err != nil {
			t.Errorf("%s at %s: drop the test's database: %v", name, u.Host, err)
		}
	})
	u.Path = "/" + database
	return u.String()
}
