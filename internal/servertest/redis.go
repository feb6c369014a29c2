package servertest

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
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
	return startRedis(t, redisProgram(nil, func(*server) []string { return args }))
}

func startRedis(t testing.TB, p program) *Redis {
	t.Helper()
	require(t, "redis", redisInstalled())
	return &Redis{startServer(t, p)}
}

// URL is redis://host:port.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// addresses are the servers' addresses as in a URL.
func addresses(servers []*Redis) string {
	var all []string
	for _, r := range servers {
		all = append(all, r.Addr())
	}
	return strings.Join(all, ",")
}

func redisInstalled() error {
	_, err := exec.LookPath("redis-server")
	return err
}

// redisProgram is redis-server with more arguments, on the host or, if that is nil, on this machine.
func redisProgram(h *host, more func(s *server) []string) program {
	return program{name: "redis", probe: probeRedis(plainText), host: h, command: func(s *server) []string {
		return slices.Concat([]string{
			"redis-server", "--port", strconv.Itoa(s.port), "--dir", s.dir, "--save", "", "--maxmemory-policy", "noeviction",
		}, bind(h), more(s))
	}}
}

// bind are the flags with which a Redis listens: on a host, at each of its addresses.
func bind(h *host) []string {
	if h != nil {
		return []string{"--bind", "*", "--protected-mode", "no"}
	}
	return []string{"--bind", "127.0.0.1"}
}

// probeRedis returns nil when the process answers, has loaded its data and is not a stranger on the port. A server with a
// password does not say its process id, and counts as the right one.
func probeRedis(dial dialer) func(ctx context.Context, s *server) error {
	return func(ctx context.Context, s *server) error {
		if _, err := askOver(ctx, dial, s.Addr(), "PING"); err != nil {
			if strings.Contains(err.Error(), "NOAUTH") {
				return nil
			}
			return err
		}
		info, err := askOver(ctx, dial, s.Addr(), "INFO", "server")
		if err == nil && !strings.Contains(info, fmt.Sprintf("\nprocess_id:%d\r", s.child.process.Pid)) {
			err = errStranger
		}
		return err
	}
}
