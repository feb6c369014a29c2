package servertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// engine is an installed database server program.
type engine struct {
	name    string   // "mariadb", "mysql" or "tidb"
	version string   // the program's own words, such as "10.11.19-MariaDB-0+deb12u1"
	daemon  []string // the command that serves, without data directory and port
	install []string // the command that fills a data directory, without that directory
	host    *host    // where it runs; nil for this machine
}

const (
	mariadb = "mariadb"
	mysql   = "mysql"
	tidb    = "tidb"
)

// installed finds the engines, once per process.
var installed = map[string]func() (engine, error){
	mariadb: sync.OnceValues(findMariaDB),
	mysql:   sync.OnceValues(findMySQL),
	tidb:    sync.OnceValues(findTiDB),
}

// Commands returns the commands that fill a data directory of the kind, [MariaDB] or [MySQL], and that serve it with the tests' settings,
// and the server's version. The caller appends directories and port, and may append other settings: the last one counts.
func Commands(kind string) (install, daemon []string, version string, err error) {
	find, ok := installed[kind]
	if !ok {
		return nil, nil, "", fmt.Errorf("no database server is called %q", kind)
	}
	e, err := find()
	return e.install, e.daemon, e.version, err
}

// frugal are the settings both engines share: small, and durable against a kill, but not against torn pages (doublewrite).
// The kernel's asynchronous I/O is off because it is scarce (fs.aio-max-nr) where many servers run. The servers of replicas and
// groups turn the binary log on.
var frugal = []string{
	"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=1", "--innodb-use-native-aio=0", "--innodb-doublewrite=0",
	"--skip-log-bin", "--max-connections=500", "--bind-address=127.0.0.1", "--secure-file-priv=",
}

func findMariaDB() (engine, error) {
	daemon, err := look("mariadbd", "mysqld")
	if err != nil {
		return engine{}, err
	}
	install, err := look("mariadb-install-db", "mysql_install_db")
	if err != nil {
		return engine{}, err
	}
	version, err := versionOf(daemon)
	if err != nil {
		return engine{}, err
	}
	if !version.mariadb {
		return engine{}, fmt.Errorf("%s is MySQL %s", daemon, version.text)
	}
	small := []string{"--innodb-log-file-size=16M", "--key-buffer-size=1M"}
	return engine{
		name: mariadb, version: version.text,
		daemon: slices.Concat([]string{daemon, "--no-defaults"}, asRoot(), small, frugal),
		install: slices.Concat([]string{install, "--no-defaults"}, asRoot(), small,
			[]string{"--auth-root-authentication-method=normal", "--skip-test-db"}),
	}, nil
}

// findMySQL takes mysqld from the path, or from the root of another system's files, which needs no chroot: there the
// program is started by that system's own loader, with its own libraries.
func findMySQL() (engine, error) {
	var program, base []string
	if path, err := look("mysqld"); err == nil {
		if version, err := versionOf(path); err == nil && !version.mariadb && version.major >= 8 {
			program = []string{path}
		}
	}
	if program == nil {
		root := os.Getenv("FIRSTTAP_MYSQL_ROOT")
		if root == "" {
			root = "/var/cache/firsttap/mysql"
		}
		var err error
		if program, err = loaded(root, "usr/sbin/mysqld"); err != nil {
			return engine{}, fmt.Errorf("no MySQL 8.0 or later in the path, nor in FIRSTTAP_MYSQL_ROOT: %w", err)
		}
		base = []string{
			"--basedir=" + filepath.Join(root, "usr"), "--lc-messages-dir=" + filepath.Join(root, "usr/share/mysql"),
		}
	}
	version, err := versionOf(program...)
	if err != nil {
		return engine{}, err
	}
	small := []string{"--loose-innodb-redo-log-capacity=16M", "--mysqlx=OFF"} // loose: 8.0.29 has no such option
	daemon := slices.Concat(program, []string{"--no-defaults"}, asRoot(), base, small, frugal)
	return engine{
		name: mysql, version: version.text,
		daemon:  daemon,
		install: slices.Concat(daemon, []string{"--initialize-insecure"}),
	}, nil
}

// loaded is the command that runs the program of another system's root directory with that system's libraries.
func loaded(root, program string) ([]string, error) {
	program = filepath.Join(root, program)
	if _, err := os.Stat(program); err != nil {
		return nil, err
	}
	loaders, _ := filepath.Glob(filepath.Join(root, "lib*/ld-linux-*.so.*"))
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	if len(loaders) == 0 || len(libraries) == 0 {
		return nil, fmt.Errorf("%s has no program loader or no libraries", root)
	}
	return []string{loaders[0], "--library-path", libraries[0], program}, nil
}

// asRoot is the flag without which a database server refuses to run as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

type version struct {
	text    string
	major   int
	mariadb bool
}

var versionText = regexp.MustCompile(`Ver ((\d+)\.\d+\.\d+\S*)`)

// versionOf asks a server program for its version.
func versionOf(command ...string) (version, error) {
	out, err := exec.Command(command[0], slices.Concat(command[1:], []string{"--no-defaults", "--version"})...).CombinedOutput()
	if err != nil {
		return version{}, fmt.Errorf("%s --version: %w\n%s", command[0], err, out)
	}
	found := versionText.FindStringSubmatch(string(out))
	if found == nil {
		return version{}, fmt.Errorf("%s --version says %q", command[0], out)
	}
	major, err := strconv.Atoi(found[2])
	return version{text: found[1], major: major, mariadb: strings.Contains(string(out), "MariaDB")}, err
}

// look finds the first of the programs that is installed, in the path or in a folder of root's path.
func look(names ...string) (string, error) {
	var failed []error
	for _, name := range names {
		for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin"} {
			path, err := exec.LookPath(filepath.Join(dir, name))
			if err == nil {
				return path, nil
			}
			if dir == "" {
				failed = append(failed, err)
			}
		}
	}
	return "", errors.Join(failed...)
}
