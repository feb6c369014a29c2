package servertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis is a redis-server process of the test's own. What it holds is gone after Kill and Start, as nothing is saved.
type Redis struct{ *server }

// StartRedis starts redis-server and returns when it answers. It saves nothing and evicts nothing, unless args, which
// are added to its command line ("--replicaof", "127.0.0.1 6379"), say otherwise. The server ends with the test.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	require(t, "redis", redisInstalled())
	r, err := newRedis(args...)
	if err != nil {
		t.Fatal(err)
	}
	r.own(t)
	return r
}

// URL is redis://host:port.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

func redisInstalled() error {
	_, err := exec.LookPath("redis-server")
	return err
}

func newRedis(args ...string) (*Redis, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	command := func(s *server) []string {
		return append([]string{
			"redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", dir,
			"--save", "", "--maxmemory-policy", "noeviction",
		}, args...)
	}
	s := &server{name: "redis", dir: dir, command: command, probe: probeRedis}
	return &Redis{s}, s.launch()
}

// probeRedis asks for PING, which is answered with an error while the server loads, and for the process's id. A server
// that wants a password doesn't say its id, and is taken as it is.
func probeRedis(ctx context.Context, s *server) error {
	const patience = time.Second
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return err
	}
	answers := bufio.NewReader(conn)
	pong, err := answers.ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(pong, "-NOAUTH") {
		return nil
	}
	if pong != "+PONG\r\n" {
		return errors.New(strings.TrimSpace(pong))
	}
	info, err := io.ReadAll(answers)
	if err != nil {
		return err
	}
	if id := fmt.Sprintf("\r\nprocess_id:%d\r\n", s.child.process.Pid); !strings.Contains(string(info), id) {
		return errors.New("a stranger answers on its port")
	}
	return nil
}
