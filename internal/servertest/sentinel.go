package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sentinelMaster is the sentinels' name of the master.
const sentinelMaster = "mymaster"

// RedisSentinel is a Redis of the test's own that three sentinels watch: after KillMaster its replica becomes the master, with
// what had been replicated. A master that is only slow stays the master, however busy the machine is. A killed master that is
// started again believes for a moment that it is the master, and then becomes the replica.
type RedisSentinel struct {
	Sentinels [3]*Redis
	Master    *Redis // at the start, and after FailOver
	replica   *Redis
}

// StartRedisSentinel starts the servers and returns when a failover is possible: the replica is in sync, and each sentinel
// knows it and the other sentinels. They end with the test.
func StartRedisSentinel(t testing.TB) *RedisSentinel {
	t.Helper()
	return startRedisSentinel(t, [5]*host{})
}

// StartRedisSentinelOnNetwork is StartRedisSentinel with servers that can be cut off. It skips the test on machines that allow no networks.
func StartRedisSentinelOnNetwork(t testing.TB) *RedisSentinel {
	t.Helper()
	return startRedisSentinel(t, [5]*host(startNetwork(t, 5).withAddresses().hosts))
}

func startRedisSentinel(t testing.TB, hosts [5]*host) *RedisSentinel {
	t.Helper()
	s := &RedisSentinel{Master: startReplicatedRedis(t, hosts[0])}
	s.replica = startReplicatedRedis(t, hosts[1], "--replicaof", fmt.Sprintf("%s %d", s.Master.ip(), s.Master.port))
	// A new sentinel looks at a replica every 10 s only, so the replica must be in sync first.
	err := until(func(ctx context.Context) error {
		return has(ctx, s.replica.Addr(), "\nmaster_link_status:up\r", "INFO", "replication")
	})
	if err == nil {
		for i := range s.Sentinels {
			s.Sentinels[i] = startRedis(t, sentinelOf(s.Master, hosts[2+i]))
		}
		// Sentinels look at servers every 10 s and tell each other every 2 s, and wait for several such periods before they act.
		s.command(t, "DEBUG", "info-period", "500", "publish-period", "500")
		err = until(s.readyForFailover)
	}
	if err != nil {
		t.Fatalf("redis sentinel: %v", err)
	}
	return s
}

// startReplicatedRedis starts a Redis that can be the sentinels' master or replica.
func startReplicatedRedis(t testing.TB, h *host, args ...string) *Redis {
	t.Helper()
	return startRedis(t, redisProgram(h, func(s *server) []string {
		// With the usual delay a new replica waits 5 s for further replicas.
		return append([]string{"--repl-diskless-sync-delay", "0", "--replica-announce-ip", s.ip()}, args...)
	}))
}

// downAfter is after which time without an answer a sentinel counts the master as down, in milliseconds.
const downAfter, slow, dead = "down-after-milliseconds", "600000", "1000"

// KillMaster kills the master. The sentinels notice within about a second.
func (s *RedisSentinel) KillMaster(t testing.TB) {
	t.Helper()
	s.command(t, "SET", sentinelMaster, downAfter, dead)
	s.Master.Kill()
}

// FailOver ends the master by stop, such as (*Redis).Freeze, and returns it once the sentinels have made the replica the master.
func (s *RedisSentinel) FailOver(t testing.TB, stop func(*Redis)) (old *Redis) {
	t.Helper()
	s.command(t, "SET", sentinelMaster, downAfter, dead)
	stop(s.Master)
	s.Master, s.replica = s.replica, s.Master
	err := until(func(ctx context.Context) error {
		for _, sentinel := range s.Sentinels {
			if err := has(ctx, sentinel.Addr(), "address="+s.Master.Addr()+",", "INFO", "sentinel"); err != nil {
				return err
			}
		}
		return has(ctx, s.Master.Addr(), "\nrole:master\r", "INFO", "replication")
	})
	if err != nil {
		t.Fatalf("redis sentinel: %v", err)
	}
	s.command(t, "SET", sentinelMaster, downAfter, slow)
	return s.replica
}

// Await returns when the old master, which runs again, is the replica, and another failover is possible.
func (s *RedisSentinel) Await(t testing.TB) {
	t.Helper()
	if err := until(s.readyForFailover); err != nil {
		t.Fatalf("redis sentinel: %v", err)
	}
}

// command sends a command to each sentinel.
func (s *RedisSentinel) command(t testing.TB, args ...string) {
	t.Helper()
	for _, sentinel := range s.Sentinels {
		err := until(func(ctx context.Context) error {
			_, err := ask(ctx, sentinel.Addr(), append([]string{"SENTINEL"}, args...)...)
			return err
		})
		if err != nil {
			t.Fatalf("redis sentinel: SENTINEL %s: %v", strings.Join(args, " "), err)
		}
	}
}

// URL is redis+sentinel://host:port,host:port,host:port/mymaster.
func (s *RedisSentinel) URL() string {
	return "redis+sentinel://" + addresses(s.Sentinels[:]) + "/" + sentinelMaster
}

// sentinelOf is a sentinel of the master. It keeps its state in its configuration file, over Kill and Start.
func sentinelOf(master *Redis, h *host) program {
	return program{
		name: "redis sentinel", probe: probeRedis(plainText), host: h,
		prepare: func(s *server) error {
			return os.WriteFile(filepath.Join(s.dir, "sentinel.conf"), fmt.Appendf(nil, `sentinel monitor %[1]s %[2]s %[3]d 2
sentinel down-after-milliseconds %[1]s %[4]s
sentinel failover-timeout %[1]s 3000
sentinel announce-ip %[5]s
`, sentinelMaster, master.ip(), master.port, slow, s.ip()), 0o600)
		},
		command: func(s *server) []string {
			return append([]string{
				"redis-server", filepath.Join(s.dir, "sentinel.conf"), "--sentinel", "--port", strconv.Itoa(s.port), "--dir", s.dir,
			}, bind(h)...)
		},
	}
}

// readyForFailover returns nil when each sentinel knows the replica and the other sentinels.
func (s *RedisSentinel) readyForFailover(ctx context.Context) error {
	for _, sentinel := range s.Sentinels {
		want := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=3", sentinelMaster, s.Master.Addr())
		if err := has(ctx, sentinel.Addr(), want, "INFO", "sentinel"); err != nil {
			return err
		}
		answer, err := ask(ctx, sentinel.Addr(), "SENTINEL", "REPLICAS", sentinelMaster)
		if err != nil {
			return err
		}
		if !strings.Contains(answer, "\nmaster-link-status\nok\n") || !strings.Contains(answer, "\nflags\nslave\n") {
			return errors.New("a sentinel has not looked at the replica:\n" + answer)
		}
	}
	return nil
}
