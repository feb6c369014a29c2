package locktest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"firsttap/lock"
)

// processes test leases whose holder's process fails.
var processes = []test{
	{name: "ProcessKilled", scope: Faults, needs: "Processes", run: (*suite).processKilled},
	{name: "ProcessStopped", scope: Faults, needs: "Processes", run: (*suite).processStopped},
	{name: "ProcessEnds", scope: Faults, needs: "Processes", run: (*suite).processEnds},
}

// child is a process that holds a name by a renewed lease, and reports what happens to the lease.
type child struct {
	*exec.Cmd
	stdout *bufio.Scanner
	stdin  io.Closer
}

// The arguments of a child are childArg, the server's URL, the name, and the TTL.
const childArg = "locktest-child"

// isChild reports whether startChild started this process.
func isChild() bool { return flag.NArg() == 4 && flag.Arg(0) == childArg }

// startChild starts the current test in a process of its own, where Run calls runChild. It returns when the child holds
// the name. The child ends with the test and with this process.
func (s *suite) startChild(t testing.TB, name string, ttl time.Duration) *child {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+top+"$", "-test.timeout=5m", childArg, s.URL, name, ttl.String())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, bufio.NewScanner(stdout), stdin}
	t.Cleanup(func() {
		c.signal(t, syscall.SIGKILL)
		_ = c.Wait() // it was killed
	})
	c.await(t, "held")
	return c
}

// signal ignores that the child has ended.
func (c *child) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("%v: %v", sig, err)
	}
}

// await waits for the child to report an event, and returns the rest of the report. A child that reports nothing is
// killed.
func (c *child) await(t testing.TB, what string) string {
	t.Helper()
	defer time.AfterFunc(timeout, func() { c.signal(t, syscall.SIGKILL) }).Stop()
	var others []string
	for c.stdout.Scan() {
		if how, ok := strings.CutPrefix(c.stdout.Text(), childArg+" "+what+": "); ok {
			return how
		}
		others = append(others, c.stdout.Text())
	}
	t.Fatalf("the child ended without the report %q:\n%s", what, strings.Join(others, "\n"))
	return ""
}

// runChild holds the name until the lease ends or the parent closes stdin.
func (r Rig) runChild(t *testing.T) {
	ttl, err := time.ParseDuration(flag.Arg(3))
	if err != nil {
		t.Fatal(err)
	}
	l := lock.New(r.Open(t, flag.Arg(1), ttl), lock.Options{Instance: "child", Timeout: answerTimeout})
	defer l.Close()
	lease, err := l.Acquire(t.Context(), flag.Arg(2), withWait(lock.Renewed(ttl, time.Hour), timeout))
	if err != nil {
		t.Fatal(err)
	}
	say := func(what string, how any) { fmt.Printf("%s %s: %v\n", childArg, what, how) }
	say("held", lease.Fence())
	finish := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it or dies
		close(finish)
	}()
	select {
	case <-lease.Context().Done():
		say("ended", errKind(context.Cause(lease.Context())))
	case <-finish:
	}
	say("released", errKind(lease.Release(context.Background())))
}

// errKind returns an error's kind for a report.
func errKind(err error) string {
	if errors.Is(err, lock.ErrLost) {
		return "lost"
	}
	return fmt.Sprint(err)
}

// If a holder is killed, its name is free within the TTL; with a session, when its connection ends.
func (s *suite) processKilled(t *testing.T) {
	n, ttl, waiter := newName(), s.renewableTTL(), s.open(t)
	if s.EndsWithConnection {
		ttl = long
	}
	c := s.startChild(t, n, ttl)
	mustBeHeld(t, waiter, n)
	c.signal(t, syscall.SIGKILL)
	_ = c.Wait() // it was killed
	_, err := waiter.Acquire(t.Context(), n, newOwner(), long)
	var held *lock.HeldError
	if errors.As(err, &held) && held.Remaining > ttl {
		t.Errorf("held for %s after its holder was killed, want %s at most", held.Remaining, ttl)
	}
	if err != nil {
		acquireEventually(t, waiter, n, long)
	}
}

// A holder that was suspended for longer than its TTL notices it before it does anything else, and changes nothing for
// the new owner.
func (s *suite) processStopped(t *testing.T) {
	n := newName()
	c := s.startChild(t, n, s.renewableTTL())
	c.signal(t, syscall.SIGSTOP)
	lease := mustLease(t, s.locker(t), n, withWait(s.frequentlyRenewed(), timeout))
	c.signal(t, syscall.SIGCONT)
	for _, what := range []string{"ended", "released"} {
		if how := c.await(t, what); how != "lost" {
			t.Errorf("%s: %s, want that the lease was lost", what, how)
		}
	}
	mustNotHappen(t, 3*quiet, "the rival's lease ended", lease.Context().Done())
	mustBeHeld(t, s.open(t), n)
	mustRelease(t, lease)
}

// A process that ends regularly releases its name first.
func (s *suite) processEnds(t *testing.T) {
	n := newName()
	c := s.startChild(t, n, long)
	mustBeHeld(t, s.open(t), n)
	_ = c.stdin.Close()
	if how := c.await(t, "released"); how != "<nil>" {
		t.Errorf("release: %s", how)
	}
	mustBeFree(t, s.open(t), n)
}
