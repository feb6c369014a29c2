package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver under the name "mysql"

	"firsttap/internal/servertest"
)

// stack is what all contenders share: one Redis and one database server in a temporary folder that is removed after the run.
type stack struct {
	starter  starter
	ports    ports
	dir      string
	redis    *process
	database *process
	version  string // of the database server
	cache    string // address of Redis
	dbPort   int
	db       *sql.DB // for the preparation; no contender uses it
	made     int     // dispatches of all comparisons together
}

// startStack starts Redis and a database server of the kind. The caller closes the stack, even after an error.
func startStack(kind string) (*stack, error) {
	dir, err := os.MkdirTemp("", "ftb")
	if err != nil {
		return nil, err
	}
	s := &stack{starter: newStarter(), dir: dir}
	if err := s.startRedis(); err != nil {
		return s, err
	}
	return s, s.startDatabase(kind)
}

// close ends both servers and removes their folder.
func (s *stack) close() {
	if s.db != nil {
		_ = s.db.Close()
	}
	for _, p := range []*process{s.redis, s.database} {
		if p != nil {
			p.stop()
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (s *stack) startRedis() error {
	port, err := s.ports.free()
	if err != nil {
		return err
	}
	s.cache = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.redis, err = s.starter.start(s.dir, "redis", nil, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	if err != nil {
		return err
	}
	return s.redis.await(func() error { return dialable(s.cache) })
}

// startDatabase makes a database folder and serves it. Every commit is flushed to disk, or else ways that commit more often
// would look better than they are.
func (s *stack) startDatabase(kind string) error {
	install, daemon, version, err := servertest.Commands(kind)
	if err != nil {
		return err
	}
	s.version = titleOf[kind] + " " + version
	places := []string{"--datadir=" + filepath.Join(s.dir, "db"), "--tmpdir=" + s.dir}
	install = slices.Concat(install, places)
	if out, err := exec.Command(install[0], install[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(install, " "), err, out)
	}
	if s.dbPort, err = s.ports.free(); err != nil {
		return err
	}
	// As it comes, but for the size of its memory and the binary log, which the tests' settings turn off.
	settings := slices.Concat(places, []string{"--port=" + strconv.Itoa(s.dbPort), "--socket=" + filepath.Join(s.dir, "s"),
		"--max-connections=1000", "--innodb-buffer-pool-size=256M", "--innodb-use-native-aio=1", "--innodb-doublewrite=1"})
	if kind == servertest.MariaDB {
		settings = append(settings, "--innodb-log-file-size=96M", "--skip-name-resolve")
	} else {
		settings = append(settings, "--innodb-redo-log-capacity=100M")
	}
	if s.database, err = s.starter.start(s.dir, kind, nil, slices.Concat(daemon, settings)...); err != nil {
		return err
	}
	if s.db, err = sql.Open("mysql", s.dsn("mysql")); err != nil {
		return err
	}
	return s.database.await(s.db.Ping)
}

// dsn is the data source name of a database of this stack, in the form of GORM's documentation.
func (s *stack) dsn(name string) string {
	return fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s?charset=utf8mb4&parseTime=True&loc=Local", s.dbPort, name)
}

// createDatabase makes an empty database.
func (s *stack) createDatabase(ctx context.Context, name string) error {
	_, err := s.db.ExecContext(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
	return err
}

// usage is the processor time, so far, of a server and of the servers that it uses.
type usage struct {
	contender time.Duration // server, Redis and database together
	parts     [3]time.Duration
	driver    time.Duration // this process
	machine   time.Duration // everything on this machine
}

// usage reads the processor times of server, Redis, database, this process and the machine.
func (s *stack) usage(server *process) (usage, error) {
	var u usage
	for i, p := range []*process{server, s.redis, s.database} {
		t, err := servertest.ProcessorTime(p.cmd.Process.Pid)
		if err != nil {
			return u, fmt.Errorf("processor time of %s: %w", p.name, err)
		}
		u.parts[i] = t
		u.contender += t
	}
	var err error
	u.machine, err = machineBusy()
	u.driver = ownCPU()
	return u, err
}

// since is the usage after before.
func (u usage) since(before usage) usage {
	for i := range u.parts {
		u.parts[i] -= before.parts[i]
	}
	u.contender -= before.contender
	u.driver -= before.driver
	u.machine -= before.machine
	return u
}

// quiesce waits until server, Redis and database are nearly idle, so that no phase pays for the one before it or hides work
// in the next one. It returns what they took until then, and waits for 15 s at most.
func (s *stack) quiesce(ctx context.Context, server *process) (usage, error) {
	const step, idle = 100 * time.Millisecond, servertest.ClockTick
	first, err := s.usage(server)
	if err != nil {
		return usage{}, err
	}
	before := first
	for quiet, steps := 0, 0; quiet < 2 && steps < 150; steps++ {
		select {
		case <-ctx.Done():
			return usage{}, ctx.Err()
		case <-time.After(step):
		}
		now, err := s.usage(server)
		if err != nil {
			return usage{}, err
		}
		quiet++
		if now.contender-before.contender > idle {
			quiet = 0
		}
		before = now
	}
	return before.since(first), nil
}

// dialable reports whether address accepts connections.
func dialable(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// titleOf are the names of the database servers.
var titleOf = map[string]string{servertest.MariaDB: "MariaDB", servertest.MySQL: "MySQL"}

// versions names the servers for the heading.
func (s *stack) versions() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return s.version
	}
	return strings.TrimSpace(string(out)) + "; " + s.version
}
