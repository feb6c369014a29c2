package systemtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"firsttap/internal/app"
	"firsttap/internal/demo"
	"firsttap/internal/testkit"
)

// shownDemo is a running demo, with the three links that its visitor gets.
type shownDemo struct {
	*Instance
	key    string
	tokens [2]string
	// end presses Ctrl-C and returns the command's error.
	end func() error
}

// showDemo runs a demo in this process, at ten times the usual pace, on a port of its own and with its temporary folder in
// dir.
func showDemo(t *testing.T, dir string) *shownDemo {
	t.Helper()
	t.Setenv("TMPDIR", dir)
	t.Chdir(t.TempDir())
	c, err := demo.ReadConfig(testkit.Settings())
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = "127.0.0.1:0"
	c.DriverRate, c.AdminRate = 100_000, 100_000 // the test polls
	ctx, cancel := context.WithCancel(context.Background())
	return follow(t, &Instance{T: t}, cancel, func(out io.Writer) error {
		return demo.Demo{Start: app.ServeInBackground, Config: c, Pace: 10, Seed: 7, Stdout: out}.Run(ctx)
	})
}

// startDemo runs the command itself, in a process with these settings.
func startDemo(t *testing.T, dir string, settings ...string) *shownDemo {
	t.Helper()
	cmd := exec.Command(os.Args[0], "demo", "--addr", "127.0.0.1:0")
	cmd.Env = append([]string{runAsInstance + "=1", coverage(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}, settings...)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	told := func() { cmd.Process.Signal(os.Interrupt) }
	return follow(t, &Instance{T: t, cmd: cmd}, told, func(out io.Writer) error {
		cmd.Stdout, cmd.Stderr = out, out
		return cmd.Run()
	})
}

// follow runs a demo until the test ends, and reads its links.
func follow(t *testing.T, i *Instance, tell func(), run func(out io.Writer) error) *shownDemo {
	t.Helper()
	i.log, i.done = &testkit.LogBuffer{}, make(chan struct{})
	s := &shownDemo{Instance: i}
	var result error
	go func() {
		defer close(i.done)
		result = run(i.log)
	}()
	s.end = func() error {
		Client.CloseIdleConnections()
		tell()
		testkit.Within(t, startOrEnd, "the demo ends", i.ended)
		return result
	}
	t.Cleanup(func() { s.end() })
	testkit.Poll(startOrEnd, func() bool { return i.log.Count("\nCtrl-C") > 0 || i.ended() })
	s.readLinks(t)
	return s
}

func (s *shownDemo) readLinks(t *testing.T) {
	t.Helper()
	links := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)(/\w+/)#(key|token)=(\S+)`).FindAllStringSubmatch(s.log.String(), -1)
	if len(links) != 3 || links[0][2] != "/console/" || links[1][2] != "/driver/" || links[2][2] != "/driver/" {
		t.Fatalf("%d links in:\n%s", len(links), s.log)
	}
	s.URL, s.key, s.tokens = links[0][1], links[0][4], [2]string{links[1][4], links[2][4]}
	for _, l := range links {
		if a := send("GET", l[1]+l[2], "", ""); a.status != 200 || !strings.Contains(a.body, "<html") {
			t.Errorf("%s: %.200s", l[0], a)
		}
	}
}

// threadsAreStopped reports whether every thread of the process has come to a stop: kill(2) returns before they do.
func threadsAreStopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return len(stats) > 0 && !slices.ContainsFunc(stats, func(stat string) bool {
		line, err := os.ReadFile(stat)
		end := bytes.LastIndexByte(line, ')') // "pid (name) state ...", and the name may contain parentheses
		return err != nil || !bytes.HasPrefix(line[end+1:], []byte(" T"))
	})
}

// listener is a socket that a process listens on.
type listener struct {
	addr string
	fd   int
}

// listeners reads a process's listening sockets from /proc.
func listeners(t *testing.T, pid int) (found []listener) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]int{}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "fd/" + fd.Name()); err == nil { // it may be closed by now
			sockets[to], _ = strconv.Atoi(fd.Name())
		}
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		raw, err := os.ReadFile(dir + table)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the machine may have no IPv6
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			const state, inode, listening = 3, 9, "0A"
			f := strings.Fields(line)
			if len(f) <= inode || f[state] != listening {
				continue
			}
			if fd, ours := sockets["socket:["+f[inode]+"]"]; ours {
				found = append(found, listener{addr: readAddress(t, f[1]), fd: fd})
			}
		}
	}
	return found
}

// readAddress parses the kernel's 0100007F:1F90: words in this machine's byte order, and the port.
func readAddress(t *testing.T, s string) string {
	t.Helper()
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(raw, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip, uint16(n)).String()
}
