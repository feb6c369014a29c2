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
// and receives nothing there, and neither side is told. Clients reach the servers on the hosts in another way, also those that are cut off.
type network struct {
	t     testing.TB
	hub   string // the namespace of the bridge to which all hosts are connected
	hosts []*host
}

// host is an address on a network.
type host struct {
	network   *network
	namespace string
	addr      string // on the network
	cable     string // the port of the bridge
	// door leads from a port of this machine to a Unix socket of the server on the host.
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
		h := &host{
			network: n, namespace: startNamespace(t), addr: fmt.Sprintf("198.18.0.%d", i), cable: fmt.Sprintf("h%d", i),
			door: StartProxy(t, ""),
		}
		n.ip(n.hub, "link add %s type veth peer name eth0 netns %s", h.cable, h.namespace)
		n.ip(n.hub, "link set %s master hub up", h.cable)
		n.ip(h.namespace, "link set lo up")
		n.ip(h.namespace, "address add %s/24 dev eth0", h.addr)
		n.ip(h.namespace, "link set eth0 up")
		n.hosts = append(n.hosts, h)
	}
	return n
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

// cutOff cuts the host off from the others.
func (h *host) cutOff() {
	h.network.t.Helper()
	h.network.ip(h.network.hub, "link set %s nomaster", h.cable)
	h.cut = true
}

func (h *host) reconnect() {
	h.network.t.Helper()
	h.network.ip(h.network.hub, "link set %s master hub", h.cable)
	h.cut = false
}

// port is the port of this machine at which clients reach the server on the host. The server has the same port on the network.
func (h *host) port() (int, error) {
	_, port, err := net.SplitHostPort(h.door.Addr())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}
