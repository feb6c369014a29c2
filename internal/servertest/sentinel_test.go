package servertest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	s := StartRedisSentinel(t)
	if want := "redis+sentinel://" + addresses(s.Sentinels[:]) + "/mymaster"; s.URL() != want {
		t.Errorf("got %s, want %s", s.URL(), want)
	}
	mustBeMaster := func(want *Redis) {
		t.Helper()
		mustCome(t, func(ctx context.Context) error { // a sentinel that stood still for 2 s does nothing for the next 30
			for _, sentinel := range s.Sentinels {
				got, err := ask(ctx, sentinel.Addr(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
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
	c := dial(t, s.Master.Addr())
	c.ask(t, "SET k v", "+OK")
	c.ask(t, "WAIT 1 0", ":1") // the replica has what this connection has written

	s.KillMaster(t)
	mustBeMaster(s.replica)
	s.command(t, "SET", sentinelMaster, downAfter, slow)
	mustAnswer(t, s.replica, "v", "GET", "k")
	mustAnswer(t, s.replica, "OK", "SET", "k", "w")

	s.Master.Start()
	mustCome(t, func(ctx context.Context) error {
		return has(ctx, s.Master.Addr(), "\nmaster_link_status:up\r", "INFO", "replication")
	})
	mustAnswer(t, s.Master, "w", "GET", "k")
}

func TestSentinelKeepsItsState(t *testing.T) {
	t.Parallel()
	s := StartRedisSentinel(t)
	s.Sentinels[0].Kill()
	s.Sentinels[0].Start()
	mustCome(t, s.readyForFailover)
}

func TestSentinelFailsOver(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	s := StartRedisSentinel(t)
	for range 2 { // back and forth
		old := s.FailOver(t, (*Redis).Freeze)
		mustAnswer(t, s.Master, "OK", "SET", "k", "v")
		old.Thaw()
		s.Await(t)
		if _, err := answerOf(old, "SET", "k", "w"); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("the old master takes a SET: %v", err)
		}
	}
}
