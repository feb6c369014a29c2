package servertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"firsttap/testkit"
)

// clusterSlots is the number of slots of a Redis cluster.
const clusterSlots = 16384

// RedisCluster is a Redis cluster of the test's own: three masters with a third of the slots each, and no replicas. A busy machine
// may stop a node for seconds, so the others do not take such a node for one that is gone.
type RedisCluster struct {
	Nodes [3]*Redis // each may be killed, frozen and started again: it keeps its place, and loses its keys
}

// StartRedisCluster starts a cluster of redis-servers, 7.0 or later, and returns when each of them serves every slot. They
// end with the test.
func StartRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	// The bus port is not 10000 above the node's, as usual: the kernel hands out those ports by itself.
	var bus [len(c.Nodes)]int
	for i := range c.Nodes {
		p := redisProgram(func(*server) []string {
			return []string{
				"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "600000",
				"--cluster-port", strconv.Itoa(bus[i]),
			}
		})
		p.prepare = func(*server) (err error) { bus[i], err = testkit.FreePort(); return err }
		c.Nodes[i] = startRedis(t, p)
	}
	if err := c.join(bus); err != nil {
		t.Fatalf("redis cluster: %v", err)
	}
	return c
}

// URL is redis+cluster://host:port,host:port,host:port.
func (c *RedisCluster) URL() string { return "redis+cluster://" + addresses(c.Nodes[:]) }

// join gives each node its slots, makes the nodes know each other, and waits until they agree that the cluster is whole.
func (c *RedisCluster) join(bus [3]int) error {
	first := c.Nodes[0]
	for i, node := range c.Nodes {
		from, to := i*clusterSlots/len(c.Nodes), (i+1)*clusterSlots/len(c.Nodes)-1
		commands := []string{
			fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", from, to),
			fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1), // without it the epochs collide, and the nodes need time to resolve that
		}
		if node != first {
			commands = append(commands, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", first.port, bus[0]))
		}
		for _, command := range commands {
			if _, err := ask(context.Background(), node.Addr(), strings.Fields(command)...); err != nil {
				return err
			}
		}
	}
	return until(func(ctx context.Context) error {
		for _, node := range c.Nodes {
			for _, want := range []string{"\ncluster_state:ok\r", "\ncluster_known_nodes:3\r", "\ncluster_slots_ok:16384\r"} {
				if err := has(ctx, node.Addr(), want, "CLUSTER", "INFO"); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
