package servertest

import (
	"fmt"
	"strings"
	"testing"

	"firsttap/testkit"
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
		if _, err := ask(t.Context(), other.Addr(), "SET", key, "v"); err == nil || err.Error() != "SET foo v: "+moved {
			t.Errorf("got %v, want %s", err, moved)
		}
	}
	mustAnswer(t, owner, "OK", "SET", key, "v")

	// Without the third node's slots the cluster is down, and whole again with them.
	for _, node := range c.Nodes {
		mustAnswer(t, node, "OK", "CONFIG", "SET", "cluster-node-timeout", "1000")
	}
	owner.Kill()
	testkit.Retry(t, func() error {
		if _, err := ask(t.Context(), c.Nodes[0].Addr(), "GET", key); err == nil || !strings.Contains(err.Error(), "CLUSTERDOWN") {
			return fmt.Errorf("got %w, want CLUSTERDOWN", err)
		}
		return nil
	})
	owner.Start()
	testkit.Retry(t, func() error {
		_, err := ask(t.Context(), owner.Addr(), "SET", key, "again")
		return err
	})
	mustAnswer(t, owner, "again", "GET", key)
}

func mustAnswer(t testing.TB, r *Redis, want string, words ...string) {
	t.Helper()
	if got, err := ask(t.Context(), r.Addr(), words...); err != nil || got != want {
		t.Fatalf("%v: got %q, %v; want %q", words, got, err, want)
	}
}
