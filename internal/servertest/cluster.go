package servertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// clusterSlots is the number of slots of a Redis cluster.
const clusterSlots = 16384

// RedisCluster is a Redis cluster of the test's own: three masters with a third of the slots each. A busy machine may stop a
// node for seconds, so the others do not take such a node for one that is gone, except during FailOver.
type RedisCluster struct {
	Nodes    [3]*Redis // the masters; each may be killed, frozen and started again: it keeps its place, and loses its keys
	Replicas []*Redis  // of each master one, or none
}

// StartRedisCluster starts a cluster of redis-servers, 7.0 or later, without replicas, and returns when each of them serves every
// slot. They end with the test.
func StartRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	return startCluster(t, make([]*host, 3))
}

// StartReplicatedCluster is StartRedisCluster with a replica of each master.
func StartReplicatedCluster(t testing.TB) *RedisCluster {
	t.Helper()
	return startCluster(t, make([]*host, 6))
}

// StartReplicatedClusterOnNetwork is StartReplicatedCluster with nodes that can be cut off. It skips the test on machines that allow no
// networks.
func StartReplicatedClusterOnNetwork(t testing.TB) *RedisCluster {
	t.Helper()
	return startCluster(t, startNetwork(t, 6).withAddresses().hosts)
}

// patientNodes and quickNodes are after which time without an answer a node counts as gone, in milliseconds.
const patientNodes, quickNodes = "600000", "1000"

func startCluster(t testing.TB, hosts []*host) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	var meet string // the command that makes a node known to the others
	for i, h := range hosts {
		node, bus := startClusterNode(t, h, i > len(c.Nodes))
		var commands []string
		if i < len(c.Nodes) {
			c.Nodes[i] = node
			from, to := i*clusterSlots/len(c.Nodes), (i+1)*clusterSlots/len(c.Nodes)-1
			commands = []string{
				fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", from, to),
				fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1), // without it the epochs collide, and the nodes need time to resolve that
			}
		} else {
			c.Replicas = append(c.Replicas, node)
		}
		if i == 0 {
			meet = fmt.Sprintf("CLUSTER MEET %s %d %d", node.ip(), node.port, bus)
		} else {
			commands = append(commands, meet)
		}
		for _, command := range commands {
			if _, err := ask(context.Background(), node.Addr(), strings.Fields(command)...); err != nil {
				t.Fatalf("redis cluster: %v", err)
			}
		}
	}
	if err := c.form(); err != nil {
		t.Fatalf("redis cluster: %v", err)
	}
	return c
}

// startClusterNode returns a node and the port of its cluster's bus. That is not 10000 above the node's, as usual: the kernel hands
// out those ports by itself. A loyal replica never takes over: only the first master is to fail, however busy the machine is.
func startClusterNode(t testing.TB, h *host, loyal bool) (node *Redis, bus int) {
	t.Helper()
	p := redisProgram(h, func(s *server) []string {
		args := []string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", patientNodes,
			"--cluster-port", strconv.Itoa(bus), "--cluster-announce-ip", s.ip(), "--repl-diskless-sync-delay", "0",
		}
		if loyal {
			args = append(args, "--cluster-replica-no-failover", "yes")
		}
		return args
	})
	p.prepare = func(s *server) (err error) { bus, err = s.reservePort(); return err }
	node = startRedis(t, p)
	return node, bus
}

// URL is redis+cluster://host:port,host:port,host:port.
func (c *RedisCluster) URL() string { return "redis+cluster://" + addresses(c.Nodes[:]) }

// form gives each master its replica, and waits until the nodes agree that the cluster is whole.
func (c *RedisCluster) form() error {
	for i, replica := range c.Replicas {
		id, err := ask(context.Background(), c.Nodes[i].Addr(), "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		err = until(func(ctx context.Context) error { // once it knows that node
			_, err := ask(ctx, replica.Addr(), "CLUSTER", "REPLICATE", id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return until(c.whole)
}

// whole returns nil when every node serves every slot, and every replica has its master's keys.
func (c *RedisCluster) whole(ctx context.Context) error {
	all := slices.Concat(c.Nodes[:], c.Replicas)
	for _, node := range all {
		known := fmt.Sprintf("\ncluster_known_nodes:%d\r", len(all))
		for _, want := range []string{"\ncluster_state:ok\r", known, "\ncluster_slots_ok:16384\r"} {
			if err := has(ctx, node.Addr(), want, "CLUSTER", "INFO"); err != nil {
				return err
			}
		}
	}
	for i, replica := range c.Replicas {
		want := fmt.Sprintf("\nmaster_host:%s\r\nmaster_port:%d\r\nmaster_link_status:up\r", c.Nodes[i].ip(), c.Nodes[i].port)
		if err := has(ctx, replica.Addr(), want, "INFO", "replication"); err != nil {
			return err
		}
	}
	return nil
}

// FailOver ends the first master by stop, such as (*Redis).Freeze, and returns it once its replica is the master of its slots. From
// then on the replica is Nodes[0].
func (c *RedisCluster) FailOver(t testing.TB, stop func(*Redis)) (old *Redis) {
	t.Helper()
	c.countAsGoneAfter(t, quickNodes)
	stop(c.Nodes[0])
	c.Nodes[0], c.Replicas[0] = c.Replicas[0], c.Nodes[0]
	err := until(func(ctx context.Context) error {
		if err := c.mastersSay(ctx, "\ncluster_slots_ok:16384\r"); err != nil {
			return err
		}
		return has(ctx, c.Nodes[0].Addr(), "\nrole:master\r", "INFO", "replication")
	})
	if err != nil {
		t.Fatalf("redis cluster: %v", err)
	}
	c.countAsGoneAfter(t, patientNodes)
	// A master that stood still for a second while it was to be quick may have found itself without a majority.
	err = until(func(ctx context.Context) error { return c.mastersSay(ctx, "\ncluster_state:ok\r") })
	if err != nil {
		t.Fatalf("redis cluster: %v", err)
	}
	return c.Replicas[0]
}

// mastersSay returns an error unless each master's CLUSTER INFO contains want.
func (c *RedisCluster) mastersSay(ctx context.Context, want string) error {
	for _, node := range c.Nodes {
		if err := has(ctx, node.Addr(), want, "CLUSTER", "INFO"); err != nil {
			return err
		}
	}
	return nil
}

// Await returns when the old master, which runs again, is a replica, and another failover is possible.
func (c *RedisCluster) Await(t testing.TB) {
	t.Helper()
	c.countAsGoneAfter(t, patientNodes)
	if err := until(c.whole); err != nil {
		t.Fatalf("redis cluster: %v", err)
	}
}

func (c *RedisCluster) countAsGoneAfter(t testing.TB, ms string) {
	t.Helper()
	for _, node := range slices.Concat(c.Nodes[:], c.Replicas) {
		if !node.runs() {
			continue
		}
		err := until(func(ctx context.Context) error {
			_, err := ask(ctx, node.Addr(), "CONFIG", "SET", "cluster-node-timeout", ms)
			return err
		})
		if err != nil {
			t.Fatalf("redis cluster: %v", err)
		}
	}
}
