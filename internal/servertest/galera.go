package servertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Galera is a MariaDB Galera cluster of three servers of the test's own. Each takes writes. A COMMIT is acknowledged when
// every server in the cluster has the transaction, and fails with error 1213 where it conflicts with one that another server has
// committed. A server that is not in the majority answers queries with error 1047. One that is started again copies the data
// of another.
type Galera struct {
	Nodes [3]*Database // each may be killed, frozen and started again
	t     testing.TB
}

// StartGalera starts a cluster and returns when all its servers are in it. They end with the test.
func StartGalera(t testing.TB) *Galera {
	t.Helper()
	return startGalera(t, nil)
}

// StartGaleraOnNetwork is StartGalera with servers that can be cut off. It skips the test on machines that allow no networks.
func StartGaleraOnNetwork(t testing.TB) *Galera {
	t.Helper()
	return startGalera(t, startNetwork(t, len(Galera{}.Nodes)).withSockets())
}

func startGalera(t testing.TB, n *network) *Galera {
	t.Helper()
	e, err := installed[mariadb]()
	require(t, mariadb, err)
	provider, err := galeraProvider()
	require(t, mariadb, err)
	g := &Galera{t: t}
	// A mariadbd takes the first --user of its command line, so the one of root goes.
	e.daemon = slices.Concat(slices.DeleteFunc(slices.Clone(e.daemon), func(arg string) bool { return arg == "--user=root" }), asNobody())
	var addresses []string // of the cluster's own traffic
	for i := range g.Nodes {
		ip := "127.0.0.1"
		if n != nil {
			e.host = n.hosts[i]
			ip = e.host.addr
		}
		p := databaseProgram(e)
		var ports [3]int
		fill, command := p.prepare, p.command
		p.prepare = func(s *server) (err error) {
			for k := range ports {
				if ports[k], err = s.reservePort(); err != nil {
					return err
				}
			}
			addresses = append(addresses[:i], fmt.Sprintf("%s:%d", ip, ports[0]))
			return errors.Join(fill(s), giveToNobody(s.dir))
		}
		p.command = func(s *server) []string {
			return slices.Concat(command(s), galeraArgs(provider, strings.Join(addresses, ","), ip, ports), firstOf(i, g))
		}
		g.Nodes[i] = &Database{startServer(t, p)}
		g.Await(i + 1)
	}
	return g
}

// Await returns when that many servers are in the cluster, and each of them has all data.
func (g *Galera) Await(size int) {
	g.t.Helper()
	err := until(func(ctx context.Context) error {
		in := 0
		for _, node := range g.Nodes {
			if node == nil || !node.runs() {
				continue
			}
			if err := node.inGalera(ctx, size); err != nil {
				return err
			}
			in++
		}
		if in != size {
			return fmt.Errorf("%d servers run, want %d", in, size)
		}
		return nil
	})
	if err != nil {
		g.t.Fatalf("galera: %v", err)
	}
}

// inGalera returns nil when the server is in a cluster of that size and has all data.
func (d *Database) inGalera(ctx context.Context, size int) error {
	const state = "SELECT GROUP_CONCAT(variable_value ORDER BY variable_name SEPARATOR ' ') FROM information_schema.global_status " +
		"WHERE variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state_comment')"
	return d.sees(ctx, fmt.Sprintf("%d Primary Synced", size), state)
}

// firstOf is the flag that begins a cluster, for its first server's first start.
func firstOf(i int, g *Galera) []string {
	if i == 0 && g.Nodes[0] == nil {
		return []string{"--wsrep-new-cluster"}
	}
	return nil
}

// galeraArgs returns the settings of a server at the address ip. ports are those on which it takes part in the cluster, receives a copy of
// the data, and receives missing transactions.
func galeraArgs(provider, addresses, ip string, ports [3]int) []string {
	return []string{
		"--wsrep-on=ON", "--wsrep-provider=" + provider, "--wsrep-cluster-address=gcomm://" + addresses, "--wsrep-cluster-name=firsttap",
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-node-address=" + ip,
		"--wsrep-sst-method=rsync", fmt.Sprintf("--wsrep-sst-receive-address=%s:%d", ip, ports[1]),
		fmt.Sprintf("--wsrep-provider-options=base_host=%[1]s;base_port=%[2]d;gmcast.listen_addr=tcp://%[1]s:%[2]d;"+
			"ist.recv_addr=%[1]s:%[3]d;gcache.size=16M", ip, ports[0], ports[2]),
	}
}

// galeraProvider is the library that makes a MariaDB a server of a cluster. Debian's mariadb-server has it.
func galeraProvider() (string, error) {
	for _, path := range []string{"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so", "/usr/lib/libgalera_smm.so"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no libgalera_smm.so, of the package galera-4")
}

// asNobody is the flag that makes a server that root starts run as nobody. As root it could not receive the data: rsync becomes
// nobody by itself.
func asNobody() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=nobody"}
	}
	return nil
}

// giveToNobody makes nobody the owner of the folder, for [asNobody].
func giveToNobody(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, id, -1))
	})
}
