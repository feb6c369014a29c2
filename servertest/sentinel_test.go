package servertest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"firsttap/testkit"
)

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	s := StartRedisSentinel(t)
	if want := "redis+sentinel://" + addresses(s.Sentinels[:]) + "/mymaster"; s.URL() != want {
		t.Errorf("got %s, want %s", s.URL(), want)
	}
	mustBeMaster := func(want *Redis) {
		t.Helper()
		testkit.Retry(t, func() error {
			for _, sentinel := range s.Sentinels {
				got, err := ask(t.Context(), sentinel.Addr(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
				if err != nil {
					return err
				}
				if host, port, _ := strings.Cut(got, "\n"); net.JoinHostPort(host, port) != want.Addr() {
					return fmt.Errorf("got %q, want %s", got, want.Addr())
				}
			}
			return nil
		})
	}
	mustBeMaster(s.Master)
	mustAnswer(t, s.Master, "OK", "SET", "k", "v")
	mustAnswer(t, s.Master, "1", "WAIT", "1", "60000")

	s.KillMaster(t)
	mustBeMaster(s.replica)
	s.setDownAfter(t, slow)
	mustAnswer(t, s.replica, "v", "GET", "k")
	mustAnswer(t, s.replica, "OK", "SET", "k", "w")

	s.Master.Start()
	testkit.Retry(t, func() error {
		return has(t.Context(), s.Master.Addr(), "\nmaster_link_status:up\r", "INFO", "replication")
	})
	mustAnswer(t, s.Master, "w", "GET", "k")
}

func TestSentinelKeepsItsState(t *testing.T) {
	t.Parallel()
	s := StartRedisSentinel(t)
	s.Sentinels[0].Kill()
	s.Sentinels[0].Start()
	testkit.Retry(t, func() error { return s.readyForFailover(t.Context()) })
}
