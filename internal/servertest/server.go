package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

const (
	readyWithin = 10 * time.Minute // a server takes seconds of processor time, and a busy machine gives a twentieth
	probeWithin = 10 * time.Second // one probe may hang; the next one does not
	pollEvery   = 10 * time.Millisecond
	portTries   = 5
)

var (
	// errPortTaken means that another process listens on the server's port.
	errPortTaken = errors.New("port is taken")
	errStranger  = errors.New("a stranger answers on its port")
)

// program is how the servers of one kind are started.
type program struct {
	name string
	// prepare fills the folder of a server that has just been given a port; nil fills in nothing.
	prepare func(s *server) error
	// command is the program with its arguments, for the server's folder and port.
	command func(s *server) []string
	// probe returns nil when the server at Addr answers and is this process, not a stranger on its port.
	probe func(ctx context.Context, s *server) error
	// host is where the server runs; nil for this machine.
	host *host
}

// server is a server process on a port of 127.0.0.1, or on a host of a test's network, with its files in a folder of its own. One goroutine
// at a time may call its methods.
type server struct {
	program
	t     testing.TB // errors fail it; nil for a server that tests share
	dir   string
	port  int
	child *child
	// freePorts end the reservations of its ports.
	freePorts []func()
	// frozen is set from Freeze to Thaw or Kill.
	frozen bool
}

// startServer starts a server that ends with the test.
func startServer(t testing.TB, p program) *server {
	t.Helper()
	s, err := newServer(p)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(s.end)
	return s
}

// newServer starts a server on a free port and returns when it answers. If that fails, nothing is left behind.
func newServer(p program) (*server, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	s := &server{program: p, dir: dir}
	if err := s.launch(); err != nil {
		s.end()
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return s, nil
}

func (s *server) launch() (err error) {
	for range portTries {
		if s.port, err = s.choosePort(); err != nil {
			return err
		}
		if s.prepare != nil {
			if err = s.prepare(s); err != nil {
				return err
			}
		}
		if err = s.run(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

func (s *server) choosePort() (int, error) {
	if s.host != nil {
		return s.host.port()
	}
	return s.reservePort()
}

// reservePort returns a port of this machine at which nothing listens. It is the server's until its end.
func (s *server) reservePort() (int, error) {
	port, free, err := testkit.ReservePort()
	if err == nil {
		s.freePorts = append(s.freePorts, free)
	}
	return port, err
}

// Addr is the server's host:port. It stays the same over Kill and Start.
func (s *server) Addr() string {
	if s.host != nil && s.host.door == nil {
		return s.peerAddr()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// peerAddr is the host:port at which other servers reach it.
func (s *server) peerAddr() string { return net.JoinHostPort(s.ip(), strconv.Itoa(s.port)) }

// ip is the address at which other servers reach it.
func (s *server) ip() string {
	if s.host != nil {
		return s.host.addr
	}
	return "127.0.0.1"
}

// Freeze stops the process without closing its connections, until Thaw or Kill. It returns when all its threads have stopped.
func (s *server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.frozen = true
	err := until(func(context.Context) error {
		if !stopped(s.child.process.Pid) {
			return errors.New("still running after SIGSTOP")
		}
		return nil
	})
	if err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
}

// Thaw resumes a frozen process.
func (s *server) Thaw() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	s.frozen = false
}

// Kill ends the process by SIGKILL, frozen or not, and returns when it is gone. Killing a dead server does nothing.
func (s *server) Kill() {
	if s.child != nil {
		s.child.kill()
		s.frozen = false
	}
}

// Start starts a killed server again on the same port and returns when it answers.
func (s *server) Start() {
	s.t.Helper()
	if s.child != nil && s.child.alive() {
		s.t.Fatalf("%s: Start of a server that runs", s.name)
	}
	if err := s.run(); err != nil {
		s.t.Fatalf("%s: start again: %v", s.name, err)
	}
}

// runs reports whether the process is neither killed nor frozen, nor cut off from the others.
func (s *server) runs() bool { return s.child.alive() && !s.frozen && (s.host == nil || !s.host.cut) }

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.child.process.Signal(sig); err != nil {
		s.t.Fatalf("%s: %v: %v", s.name, sig, err)
	}
}

// end kills the server, frees its ports and removes its files.
func (s *server) end() {
	s.Kill()
	for _, free := range s.freePorts {
		free()
	}
	s.freePorts = nil
	if err := os.RemoveAll(s.dir); err != nil && s.t != nil {
		s.t.Errorf("%s: remove its files: %v", s.name, err)
	}
}

// run starts the process and returns when it answers. A process that doesn't is killed, and the error has the end of its
// log.
func (s *server) run() error {
	argv := s.command(s)
	if s.host != nil {
		argv = within(s.host.namespace, argv)
	}
	child, err := startChild(argv, s.dir, filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	s.child = child
	err = until(func(ctx context.Context) error {
		err := s.probe(ctx, s)
		if err != nil && !s.child.alive() {
			err = errEnded
		}
		return err
	})
	if err != nil {
		s.Kill()
		text := s.log()
		if strings.Contains(strings.ToLower(text), "address already in use") {
			err = errors.Join(errPortTaken, err)
		}
		return fmt.Errorf("%w\nits log ends:\n%s", err, text)
	}
	return nil
}

// log is the end of the server's output.
func (s *server) log() string { return tail(filepath.Join(s.dir, "log")) }

// errEnded means that there is nothing left to wait for.
var errEnded = errors.New("the process ended before it answered")

// until calls check until it returns nil or errEnded. After readyWithin it returns check's last error.
func until(check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		probe, stop := context.WithTimeout(ctx, probeWithin)
		err := check(probe)
		stop()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", readyWithin, err)
		case <-tick.C:
		}
	}
}

// tail is the end of the file at path.
func tail(path string) string {
	const most = 4 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
