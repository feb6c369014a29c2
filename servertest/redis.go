package servertest

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Redis is a redis-server process of the test's own. Its keys do not survive Kill and Start: nothing is saved.
type Redis struct{ *server }

// StartRedis starts redis-server and returns when it answers. It neither saves nor evicts. args are
// added to its command line ("--replicaof", "127.0.0.1 6379"). The server ends with the test.
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

// probeRedis returns nil when the process answers, has loaded its data and is not a stranger on the port. A server with a
// password does not say its process id, and counts as the right one.
func probeRedis(ctx context.Context, s *server) error {
	switch _, err := ask(ctx, s.Addr(), "PING"); {
	case err == nil:
		return probeSentinel(ctx, s)
	case strings.Contains(err.Error(), "NOAUTH"):
		return nil
	default:
		return err
	}
}
