package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"firsttap/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// The command finds the servers in its environment, its failure is reported, and the servers and what it has left running end with it.
func TestWhatACommandLeavesRunning(t *testing.T) {
	servertest.RedisURL(t) // skips the test where no Redis is installed
	t.Setenv("TMPDIR", os.TempDir())
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	said := make(chan string)
	go func() {
		text, _ := os.ReadFile(pipe) // ends when no process can write to it any more
		said <- string(text)
	}()
	const script = `exec >"$0"; echo $FIRSTTAP_TEST_REDIS_URL; sleep 100000 & exit 3`
	if err := run([]string{"sh", "-c", script, pipe}); err == nil || !strings.HasSuffix(err.Error(), "exit status 3") {
		t.Errorf("the command failed, and that is reported as %v", err)
	}
	addr, found := strings.CutPrefix(strings.TrimSpace(<-said), "redis://")
	if !found {
		t.Fatalf("the command has no Redis but %q", addr)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Errorf("the Redis at %s is still there", addr)
	}
}
