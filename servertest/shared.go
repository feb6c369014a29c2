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
)

// RedisURL is a Redis that tests share and must not break: the one in FIRSTTAP_TEST_REDIS_URL, or one that this process
// started. Other tests' keys are there too.
func RedisURL(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(environmentOf("redis")); u != "" {
		return u
	}
	require(t, "redis", redisInstalled())
	r, err := sharedRedis()
	if err != nil {
		t.Fatal(err)
	}
	return r.URL()
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
	sharedRedis = sync.OnceValues(func() (*Redis, error) {
		r, err := newRedis()
		if err == nil {
			share(r.server)
		}
		return r, err
	})
	sharedDatabase = map[string]func() (*Database, error){
		mariadb: sync.OnceValues(func() (*Database, error) { return newSharedDatabase(mariadb) }),
		mysql:   sync.OnceValues(func() (*Database, error) { return newSharedDatabase(mysql) }),
	}

	sharedMu sync.Mutex
	shared   []*server
)

func newSharedDatabase(name string) (*Database, error) {
	e, err := installed[name]()
	if err != nil {
		return nil, err
	}
	e.daemon = slices.Concat(e.daemon, []string{"--innodb-buffer-pool-size=256M", "--max-connections=2000"}) // for many tests
	d, err := newDatabase(e)
	if err == nil {
		share(d.server)
	}
	return d, err
}

// StartShared starts the servers that all test processes of a run share: Redis, MariaDB and MySQL, those that are installed.
// The variables in environ lead RedisURL, EmptyURL and Migrated of these processes to the servers. end ends them.
func StartShared() (environ []string, end func(), err error) {
	defer func() {
		if err != nil {
			endShared()
		}
	}()
	if redisInstalled() == nil {
		r, err := sharedRedis()
		if err != nil {
			return nil, nil, err
		}
		environ = append(environ, environmentOf("redis")+"="+r.URL())
	}
	for _, kind := range EveryServer() {
		if _, err := installed[kind](); err != nil {
			continue
		}
		d, err := sharedDatabase[kind]()
		if err != nil {
			return nil, nil, err
		}
		environ = append(environ, environmentOf(kind)+"=mysql://root@"+d.Addr())
	}
	return environ, endShared, nil
}

// environmentOf is the variable with the URL of a shared server.
func environmentOf(kind string) string { return "FIRSTTAP_TEST_" + strings.ToUpper(kind) + "_URL" }

func share(s *server) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	shared = append(shared, s)
}

func endShared() {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	for _, s := range shared {
		s.end()
	}
	shared = nil
}

// serverURL is the server in the environment, or else the shared one.
func serverURL(t testing.TB, name string) string {
	t.Helper()
	if server := os.Getenv(environmentOf(name)); server != "" {
		return server
	}
	_, err := installed[name]()
	require(t, name, err)
	d, err := sharedDatabase[name]()
	if err != nil {
		t.Fatal(err)
	}
	return "mysql://root@" + d.Addr()
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
	password, _ := u.User.Password()
	c := config(u.User.Username(), password, u.Host, "")
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
