package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// network is a network of the test's own, in kernel namespaces: its hosts reach each other, and nothing else. A host that is cut off sends
// and receives nothing there, and neither side is told. Clients reach the servers on the hosts in another way, also those that are cut off:
// see [network.withSockets] and [network.withAddresses].
type network struct {
	t     testing.TB
	hub   string // the namespace of the bridge to which all hosts are connected
	hosts []*host
}

// host is a machine on a network.
type host struct {
	network   *network
	namespace string
	addr      string // at which the other hosts reach it
	cable     string // the port of the bridge
	// door leads from a port of this machine to a Unix socket of the server on the host. It is nil if clients reach the host at addr.
	door *Proxy
	cut  bool
}

// startNetwork starts a network that ends with the test. It skips the test where processes may not have networks of their own.
func startNetwork(t testing.TB, hosts int) *network {
	t.Helper()
	out, err := exec.Command("unshare", "--net", "ip", "link", "add", "hub", "type", "bridge").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w %s", err, out)
	}
	require(t, "network", err)
	n := &network{t: t, hub: startNamespace(t)}
	n.ip(n.hub, "link add hub up type bridge")
	for i := 1; i <= hosts; i++ {
		h := &host{network: n, namespace: startNamespace(t), addr: fmt.Sprintf("198.18.0.%d", i), cable: fmt.Sprintf("h%d", i)}
		n.ip(n.hub, "link add %s type veth peer name eth0 netns %s", h.cable, h.namespace)
		n.ip(n.hub, "link set %s master hub up", h.cable)
		n.ip(h.namespace, "link set lo up")
		n.ip(h.namespace, "address add %s/24 dev eth0", h.addr)
		n.ip(h.namespace, "link set eth0 up")
		n.hosts = append(n.hosts, h)
	}
	return n
}

// withSockets gives each host a port of this machine that leads to a Unix socket, for servers that listen on one.
func (n *network) withSockets() *network {
	for _, h := range n.hosts {
		h.door = StartProxy(n.t, "")
	}
	return n
}

// withAddresses connects this machine with the hosts by a second network, and gives each host an address at which both clients and the
// other hosts reach it, for servers that tell clients each other's addresses. The other hosts reach it over the first network only.
func (n *network) withAddresses() *network {
	n.t.Helper()
	subnet := n.connect()
	addr := func(of *host) string { return strings.Replace(of.addr, "198.18.0", subnet, 1) }
	for _, h := range n.hosts {
		n.ip(n.hub, "link add c%s type veth peer name eth1 netns %s", h.cable, h.namespace)
		n.ip(n.hub, "link set c%s master yard up", h.cable)
		n.ip(h.namespace, "address add %s/24 dev eth1", addr(h))
		n.ip(h.namespace, "link set eth1 up")
		for _, other := range n.hosts {
			if other != h {
				n.ip(h.namespace, "route add %s/32 via %s", addr(other), other.addr)
			}
		}
	}
	for _, h := range n.hosts {
		h.addr = addr(h)
	}
	return n
}

// connect connects this machine with a new bridge beside the hub, and returns the first three numbers of the addresses there. The link has
// its network's number in its name, and no two links have the same name. So no two of these networks have the same addresses.
func (n *network) connect() string {
	n.t.Helper()
	n.ip(n.hub, "link add yard up type bridge")
	here := func(format string, args ...any) (string, error) {
		out, err := exec.Command("ip", strings.Fields(fmt.Sprintf(format, args...))...).CombinedOutput()
		return string(out), err
	}
	for number := range 256 {
		subnet, link := fmt.Sprintf("198.19.%d", number), fmt.Sprintf("firsttap%d", number)
		if routed, err := here("-4 route show root %s.0/24", subnet); err != nil || routed != "" {
			continue // somebody else's network
		}
		out, err := here("link add %s type veth peer name gate netns %s", link, n.hub)
		if err != nil && strings.Contains(out, "File exists") {
			continue
		}
		if err != nil {
			require(n.t, "network", fmt.Errorf("%w %s", err, out))
		}
		n.ip(n.hub, "link set gate master yard up")
		for _, command := range []string{"address add " + subnet + ".254/24 dev " + link, "link set " + link + " up"} {
			if out, err := here("%s", command); err != nil {
				n.t.Fatalf("network: ip %s: %v\n%s", command, err, out)
			}
		}
		return subnet
	}
	n.t.Fatal("network: each of 256 networks is taken")
	return ""
}

// startNamespace starts a process with a network namespace, which ends with it, and returns the process's number.
func startNamespace(t testing.TB) string {
	t.Helper()
	holder, err := startChild([]string{"unshare", "--net", "sleep", "infinity"}, t.TempDir(), filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatalf("network: %v", err)
	}
	t.Cleanup(holder.kill)
	pid := strconv.Itoa(holder.process.Pid)
	err = until(func(context.Context) error {
		mine, err := os.Readlink("/proc/self/ns/net")
		its, itsErr := os.Readlink("/proc/" + pid + "/ns/net")
		switch {
		case !holder.alive():
			return errEnded
		case err != nil || itsErr != nil:
			return errors.Join(err, itsErr)
		case mine == its:
			return errors.New("the process is still in this namespace")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("network: %v", err)
	}
	return pid
}

// ip runs the program ip in a namespace.
func (n *network) ip(namespace, format string, args ...any) {
	n.t.Helper()
	words := within(namespace, append([]string{"ip"}, strings.Fields(fmt.Sprintf(format, args...))...))
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		n.t.Fatalf("network: %v: %v\n%s", words, err, out)
	}
}

// within is the command that runs argv, as the same process, in a namespace.
func within(namespace string, argv []string) []string {
	return append([]string{"nsenter", "--net=/proc/" + namespace + "/ns/net", "--"}, argv...)
}

// CutOff cuts a server on a network off from the other servers. Clients still reach it.
func (s *server) CutOff() {
	s.t.Helper()
	s.plug("nomaster")
	s.host.cut = true
}

// Reconnect ends what CutOff began.
func (s *server) Reconnect() {
	s.t.Helper()
	s.plug("master hub")
	s.host.cut = false
}

// plug connects the cable of the server's host.
func (s *server) plug(to string) {
	s.t.Helper()
	if s.host == nil {
		s.t.Fatalf("%s at %s is on no network", s.name, s.Addr())
	}
	s.host.network.ip(s.host.network.hub, "link set %s %s", s.host.cable, to)
}

// port is the port of this machine at which clients reach the server on the host, which has the same port on the network. Where clients
// reach the host itself, it is the port of a Redis: on a host of its own, a server finds each port free.
func (h *host) port() (int, error) {
	if h.door == nil {
		return 6379, nil
	}
	_, port, err := net.SplitHostPort(h.door.Addr())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}
