package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t)
	if want := "redis+cluster://" + c.Nodes[0].Addr() + "," + c.Nodes[1].Addr() + "," + c.Nodes[2].Addr(); c.URL() != want {
		t.Errorf("got %s, want %s", c.URL(), want)
	}
	// foo is in slot 12182, of the third node; the others say where.
	const key = "foo"
	owner := c.Nodes[2]
	moved := "MOVED 12182 " + owner.Addr()
	for _, other := range c.Nodes[:2] {
		if _, err := answerOf(other, "SET", key, "v"); err == nil || err.Error() != "SET foo v: "+moved {
			t.Errorf("got %v, want %s", err, moved)
		}
	}
	mustAnswer(t, owner, "OK", "SET", key, "v")

	// Without the third node's slots the cluster is down, and whole again with them.
	for _, node := range c.Nodes {
		mustAnswer(t, node, "OK", "CONFIG", "SET", "cluster-node-timeout", "1000")
	}
	owner.Kill()
	mustCome(t, func(ctx context.Context) error {
		if _, err := ask(ctx, c.Nodes[0].Addr(), "GET", key); err == nil || !strings.Contains(err.Error(), "CLUSTERDOWN") {
			return fmt.Errorf("got %w, want CLUSTERDOWN", err)
		}
		return nil
	})
	owner.Start()
	mustCome(t, func(ctx context.Context) error {
		_, err := ask(ctx, owner.Addr(), "SET", key, "again")
		return err
	})
	mustCome(t, func(ctx context.Context) error { // a node that stands still for a second brings the cluster down again for a moment
		got, err := ask(ctx, owner.Addr(), "GET", key)
		if err == nil && got != "again" {
			t.Errorf("got %q, want what was set", got)
		}
		return err
	})
}

func TestClusterFailsOver(t *testing.T) {
	testkit.OnlyInAll(t)
	t.Parallel()
	c := StartReplicatedCluster(t)
	const key = "{b}" // slot 3300, of the first node
	mustAnswer(t, c.Nodes[0], "OK", "SET", key, "v")
	for name, fail := range map[string]struct{ stop, mend func(*Redis) }{
		"killed": {(*Redis).Kill, (*Redis).Start},
		"frozen": {(*Redis).Freeze, (*Redis).Thaw},
	} {
		mustAnswer(t, c.Nodes[0], "OK", "SET", key, name)
		mustCome(t, func(ctx context.Context) error {
			return has(ctx, c.Nodes[0].Addr(), "\n"+fmt.Sprintf("slave0:ip=127.0.0.1,port=%d,state=online,", c.Replicas[0].port), "INFO", "replication")
		})
		old := c.FailOver(t, fail.stop)
		mustAnswer(t, c.Nodes[0], "OK", "SET", key, "after")
		fail.mend(old)
		c.Await(t)
		if _, err := answerOf(old, "SET", key, "w"); err == nil || !strings.Contains(err.Error(), "MOVED 3300 "+c.Nodes[0].Addr()) {
			t.Errorf("%s, the old master takes a SET: %v", name, err)
		}
	}
}

// mustCome waits until check returns nil, as long as for a server's start.
func mustCome(t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	if err := until(check); err != nil {
		t.Fatal(err)
	}
}

// answerOf sends the command, again if the Redis does not answer in time, and returns the answer or the last error.
func answerOf(r *Redis, words ...string) (answer string, err error) {
	_ = until(func(ctx context.Context) error {
		var slow net.Error
		if answer, err = ask(ctx, r.Addr(), words...); errors.As(err, &slow) && slow.Timeout() {
			return err
		}
		return nil
	})
	return answer, err
}

func mustAnswer(t testing.TB, r *Redis, want string, words ...string) {
	t.Helper()
	if got, err := answerOf(r, words...); err != nil || got != want {
		t.Fatalf("%v: got %q, %v; want %q", words, got, err, want)
	}
}
