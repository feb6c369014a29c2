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

	"firsttap/testkit"
)

const (
	readyWithin = 60 * time.Second
	pollEvery   = 10 * time.Millisecond
	portTries   = 5
)

// errPortTaken means that another process listens on the server's port.
var errPortTaken = errors.New("port is taken")

// server is a server process on a port of 127.0.0.1, with its files in a folder of its own. One goroutine at a time may
// call its methods.
type server struct {
	t    testing.TB // set by own; errors fail it
	name string
	dir  string
	port int

	// command is the program with its arguments, for the current port.
	command func(s *server) []string
	// probe returns nil when the server at Addr answers and is this process, not a stranger on its port.
	probe func(ctx context.Context, s *server) error

	child *child
}

// Addr is the server's host:port. It stays the same over Kill and Start.
func (s *server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Freeze stops the process without closing its connections, until Thaw or Kill. It returns when all its threads have stopped.
func (s *server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
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
}

// Kill ends the process by SIGKILL, frozen or not, and returns when it is gone. Killing a dead server does nothing.
func (s *server) Kill() {
	if s.child != nil {
		s.child.kill()
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

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.child.process.Signal(sig); err != nil {
		s.t.Fatalf("%s: %v: %v", s.name, sig, err)
	}
}

// own makes s end with the test t.
func (s *server) own(t testing.TB) {
	s.t = t
	t.Cleanup(s.end)
}

// end kills the server and removes its files.
func (s *server) end() {
	s.Kill()
	if err := os.RemoveAll(s.dir); err != nil && s.t != nil {
		s.t.Errorf("%s: remove its files: %v", s.name, err)
	}
}

// launch starts the server on a free port and returns when it answers. If that fails, nothing is left behind.
func (s *server) launch() error {
	err := errPortTaken
	for try := 0; try < portTries && errors.Is(err, errPortTaken); try++ {
		if s.port, err = testkit.FreePort(); err == nil {
			err = s.run()
		}
	}
	if err != nil {
		s.end()
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return nil
}

// run starts the process and returns when it answers. A process that doesn't is killed, and the error has the end of its
// log.
func (s *server) run() error {
	log := filepath.Join(s.dir, "log")
	child, err := startChild(s.command(s), s.dir, log)
	if err != nil {
		return err
	}
	s.child = child
	if err := s.ready(); err != nil {
		s.Kill()
		text := tail(log)
		if strings.Contains(strings.ToLower(text), "address already in use") {
			err = errors.Join(errPortTaken, err)
		}
		return fmt.Errorf("%w\nits log ends:\n%s", err, text)
	}
	return nil
}

// errEnded means that there is nothing left to wait for.
var errEnded = errors.New("the process ended before it answered")

func (s *server) ready() error {
	return until(func(ctx context.Context) error {
		err := s.probe(ctx, s)
		if err != nil && !s.child.alive() {
			err = errEnded
		}
		return err
	})
}

// until calls check until it returns nil or errEnded. After readyWithin it returns check's last error.
func until(check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check(ctx)
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
