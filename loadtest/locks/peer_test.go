package locks

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// peer is a process that holds locks: this program, or Java's firsttap.Peer of loadtest/jvm. It reads a command from each line, and answers
// it by a line. Durations are in milliseconds; an instant is the machine's clock in microseconds.
//
//	lock NAME ATMOST ATLEAST WAIT
//	    held INSTANT, or busy
//	unlock NAME
//	    free INSTANT, of the moment before; or lost
//	turns TIMES NAME
//	    took MICROSECONDS: acquires and releases, one after another
//	race PREFIX NAMES CONTENDERS ATMOST ATLEAST
//	    ready, and after another line
//	    won NAMES MICROSECONDS: each contender asks for each name, and releases what it won when all have asked
//
// The holds of ShedLock, and of FirstTap with an ATMOST, are not renewed. Redisson's, and FirstTap's without an ATMOST, are renewed.
type peer struct {
	name string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Scanner
}

// TestMain runs the Go peer if that is what this program was started as.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != goPeer {
		os.Exit(m.Run())
	}
	if err := runGoPeer(os.Args[2:]); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// goPeer is the first argument of this program as a peer.
const goPeer = "peer"

func startGo(t *testing.T, args ...string) *peer {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startPeer(t, "Go", exec.Command(program, append([]string{goPeer}, args...)...))
}

// classPath is that of the Java peer, which `make seeds` compiles. Without it the test is skipped.
func classPath(t *testing.T) string {
	t.Helper()
	classes := os.Getenv("FIRSTTAP_JVM")
	if classes == "" {
		t.Skip("make seeds runs this: it needs a JDK and Maven")
	}
	return classes
}

// startJava starts a peer in a JVM, whose time zone is neither UTC's nor the server's.
func startJava(t *testing.T, args ...string) *peer {
	t.Helper()
	jvm := []string{"-Duser.timezone=Pacific/Auckland", "-cp", classPath(t), "firsttap.Peer"}
	return startPeer(t, "Java", exec.Command("java", append(jvm, args...)...))
}

// startPeer starts a peer that ends with the test, or with this process, which closes its input.
func startPeer(t *testing.T, name string, cmd *exec.Cmd) *peer {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &peer{name, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process by SIGKILL, and returns when it is gone.
func (p *peer) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.cmd.Wait()
}

// tell sends a command, whose answer the caller reads.
func (p *peer) tell(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

// answer returns the answer's first word, and the numbers after it. A peer without an answer is killed.
func (p *peer) answer(t *testing.T) (word string, numbers []int64) {
	t.Helper()
	defer time.AfterFunc(3*testkit.Patience, func() { _ = p.cmd.Process.Kill() }).Stop()
	if !p.out.Scan() {
		t.Fatalf("%s ended without an answer", p.name)
	}
	words := strings.Fields(p.out.Text())
	if len(words) == 0 || words[0] == "error" {
		t.Fatalf("%s: %s", p.name, p.out.Text())
	}
	for _, w := range words[1:] {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			t.Fatalf("%s: %s", p.name, p.out.Text())
		}
		numbers = append(numbers, n)
	}
	return words[0], numbers
}

// ask sends a command and returns the first word of its answer.
func (p *peer) ask(t *testing.T, format string, args ...any) string {
	t.Helper()
	p.tell(t, format, args...)
	word, _ := p.answer(t)
	return word
}

// must sends a command whose answer has to begin with want, and returns the answer's numbers.
func (p *peer) must(t *testing.T, want, format string, args ...any) []int64 {
	t.Helper()
	p.tell(t, format, args...)
	word, numbers := p.answer(t)
	if word != want {
		t.Fatalf("%s answers %q to %q, want %q", p.name, word, fmt.Sprintf(format, args...), want)
	}
	return numbers
}
