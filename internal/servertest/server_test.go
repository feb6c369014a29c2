package servertest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

func TestRedisFreezeAndThaw(t *testing.T) {
	r := StartRedis(t)
	c := dial(t, r.Addr())
	c.ask(t, "PING", "+PONG")
	r.Freeze()
	c.send(t, "PING")
	c.mustBeSilent(t)
	r.Thaw()
	c.mustReply(t, "+PONG")
}

func TestRedisKillAndStart(t *testing.T) {
	r := StartRedis(t)
	addr := r.Addr()
	c := dial(t, addr)
	c.ask(t, "SET k v", "+OK")
	r.Kill()
	c.mustEnd(t)
	if err := isGone(addr); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	r.Start()
	if r.Addr() != addr {
		t.Fatalf("moved from %s to %s", addr, r.Addr())
	}
	dial(t, addr).ask(t, "GET k", "(nil)")
}

func TestFrozenServerEndsWithItsTest(t *testing.T) {
	var r *Redis
	t.Run("frozen", func(t *testing.T) {
		r = StartRedis(t)
		r.Freeze()
	})
	if err := isGone(r.Addr()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func TestTakenPortIsNoticed(t *testing.T) {
	first := StartRedis(t)
	second := StartRedis(t)
	second.Kill()
	second.port = first.port
	err := second.run()
	if err == nil || !strings.Contains(err.Error(), errPortTaken.Error()) {
		t.Fatalf("got %v, want %v", err, errPortTaken)
	}
}

// The environment variable makes this test binary the process that dies. It names the file to which that process writes
// a line "folder address" for each server.
const doomedFile = "SERVERTEST_DOOMED_FILE"

func TestServersDieWithTheTestProcess(t *testing.T) {
	for _, name := range []string{"redis", mariadb, mysql} {
		t.Run(name, func(t *testing.T) {
			if path := os.Getenv(doomedFile); path != "" {
				waitForDeath(t, name, path)
			}
			require(t, name, missing(name))
			dir, addr := killTestProcess(t)
			t.Cleanup(func() { os.RemoveAll(dir) })
			testkit.Retry(t, func() error { return isGone(addr) })
		})
	}
}

func waitForDeath(t *testing.T, name, path string) {
	var s *server
	if name == "redis" {
		s = StartRedis(t).server
	} else {
		s = StartDatabase(t, name).server
	}
	if err := os.WriteFile(path, []byte(s.dir+" "+s.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		t.Fatal(err)
	}
	<-make(chan struct{})
}

// killTestProcess runs the current test in a process of its own, kills it once its server answers, and returns the
// server's folder and address.
func killTestProcess(t *testing.T) (dir, addr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server")
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), doomedFile+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if line != "ready\n" {
		t.Fatalf("got %q, %v", line, readErr)
	}
	told, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, addr, _ = strings.Cut(string(told), " ")
	return dir, addr
}
