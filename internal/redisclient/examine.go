package redisclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/doctor"
)

// Use is a command as FirstTap sends it: its name and its arguments.
type Use []string

// examineTimeout bounds each step of each command of an examination.
const examineTimeout = 2 * time.Second

// Examine checks the Redis at rawURL, and writes nothing there. uses are the commands that the user of the URL must be allowed to send,
// and tap is how long a tap waits for Redis.
func Examine(ctx context.Context, r *doctor.Report, rawURL string, own Installation, uses []Use, tap time.Duration) {
	rest := []string{
		"redis.version", "redis.role", "redis.eviction", "redis.scripts", "redis.writes", "redis.namespace", "redis.latency",
	}
	opts, err := parseURL(rawURL)
	if err != nil {
		r.Add("redis.connection", doctor.Failure(err.Error(), "correct FIRSTTAP_REDIS_URL"))
		r.Skip("redis.connection", rest...)
		return
	}
	if opts.MasterName != "" {
		r.Check(ctx, "redis.sentinels", func(ctx context.Context) doctor.Finding { return examineSentinels(ctx, opts) })
	}
	e := &examination{opts: opts, own: own, uses: uses, tap: tap}
	defer e.close()
	if e.client, err = Dial(rawURL, examineTimeout); err != nil {
		r.Add("redis.connection", doctor.Failure(err.Error(), "correct FIRSTTAP_REDIS_URL"))
		return
	}
	if !r.Check(ctx, "redis.connection", e.connect) {
		r.Skip("redis.connection", rest...)
		return
	}
	if opts.IsClusterMode {
		r.Check(ctx, "redis.cluster", e.cluster)
	}
	for i, check := range []func(context.Context) doctor.Finding{
		e.version, e.role, e.eviction, e.scripts, e.writes, e.others, e.latency,
	} {
		r.Check(ctx, rest[i], check)
	}
}

// ExamineServer is Examine for a single server of a quorum, with one finding.
func ExamineServer(ctx context.Context, rawURL string, uses []Use) doctor.Finding {
	opts, err := parseURL(rawURL)
	if err != nil {
		return doctor.Failure(err.Error(), "correct FIRSTTAP_QUORUM_URLS")
	}
	e := &examination{opts: opts, uses: uses}
	defer e.close()
	if e.client, err = Dial(rawURL, examineTimeout); err != nil {
		return doctor.Failure(err.Error(), "correct FIRSTTAP_QUORUM_URLS")
	}
	all := doctor.Good("")
	for _, check := range []func(context.Context) doctor.Finding{e.connect, e.version, e.role, e.eviction, e.scripts, e.writes} {
		f := check(ctx)
		if f.Status == doctor.Fails {
			return doctor.Failure(opts.Addrs[0]+": "+f.Found, strings.ReplaceAll(f.Next, "FIRSTTAP_REDIS_URL", "FIRSTTAP_QUORUM_URLS"))
		}
		if f.Status == doctor.Warning {
			all = doctor.Doubt("", f.Next)
		}
		all.Found += f.Found + "; "
	}
	all.Found = strings.TrimSuffix(all.Found, "; ")
	return all
}

// examination is a look at the servers that take writes.
type examination struct {
	opts   *redis.UniversalOptions
	client redis.UniversalClient
	own    Installation
	uses   []Use
	tap    time.Duration
	nodes  []*node
	lost   []string // masters of a cluster that do not answer, with their errors
}

// node is a server that answers: a single one, the sentinels' master, or a master of a cluster.
type node struct {
	addr   string
	client *redis.Client
	info   map[string]map[string]string
	hidden error // why it does not say what it is
}

func (e *examination) close() {
	if e.client != nil {
		e.client.Close()
	}
}

// connect finds the servers.
func (e *examination) connect(ctx context.Context) doctor.Finding {
	seeds := strings.Join(e.opts.Addrs, ", ")
	err := e.visit(ctx)
	if err != nil && len(e.nodes) == 0 {
		return doctor.Failure(seeds+": "+err.Error(), afterError(err))
	}
	var addrs []string
	for _, n := range e.nodes {
		addrs = append(addrs, n.addr)
	}
	found := strings.Join(addrs, ", ")
	switch mode := e.nodes[0].info["Server"]["redis_mode"]; {
	case mode == "sentinel":
		return doctor.Failure(found+" is a sentinel", "want redis+sentinel://h1,h2,h3/name-of-the-master in FIRSTTAP_REDIS_URL")
	case mode == "cluster" && !e.opts.IsClusterMode:
		return doctor.Failure(found+" is a node of a cluster", "want redis+cluster://h1,h2,h3 in FIRSTTAP_REDIS_URL")
	case e.opts.IsClusterMode:
		return doctor.Good("cluster, masters " + found)
	case e.opts.MasterName != "":
		return doctor.Good(fmt.Sprintf("sentinels, master %s at %s", e.opts.MasterName, found))
	}
	return doctor.Good("single server " + found)
}

// visit asks each server that takes writes for its INFO.
func (e *examination) visit(ctx context.Context) error {
	switch client := e.client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		err := client.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			n, err := visitNode(ctx, c, c.Options().Addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.lost = append(e.lost, fmt.Sprintf("%s (%v)", c.Options().Addr, err))
				return err
			}
			e.nodes = append(e.nodes, n)
			return nil
		})
		slices.SortFunc(e.nodes, func(a, b *node) int { return cmp.Compare(a.addr, b.addr) })
		return err
	case *redis.Client:
		addr := e.opts.Addrs[0]
		if e.opts.MasterName != "" {
			addr = masterAddr(ctx, e.opts)
		}
		n, err := visitNode(ctx, client, addr)
		if err == nil {
			e.nodes = []*node{n}
		}
		return err
	}
	return fmt.Errorf("%T is no client that can be examined", e.client)
}

func visitNode(ctx context.Context, c *redis.Client, addr string) (*node, error) {
	n := &node{addr: addr, client: c}
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	n.info, n.hidden = c.InfoMap(ctx, "server", "memory", "replication").Result()
	return n, nil
}

// refusedCommand finds the command in a refusal of Redis, and nothing in one of a key or a channel.
var refusedCommand = regexp.MustCompile(`run the '([^']+)' command`)

// grant returns the command that allows what a refusal of Redis names.
func grant(refusal string) string {
	user := "ACL SETUSER ... "
	if found := refusedCommand.FindStringSubmatch(refusal); found != nil {
		return user + "+" + found[1]
	}
	if strings.Contains(refusal, "channel") {
		return user + "&* (docs/operations.md names the channels)"
	}
	return user + "~* (docs/operations.md names the keys)"
}

// grants returns what allows the commands that a user may not send.
func grants(refused []string) string {
	var names []string
	for _, use := range refused {
		name, _, _ := strings.Cut(use, " ")
		names = append(names, "+"+name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// afterError says what to do about an error that a server answered, or about one that kept it from answering.
func afterError(err error) string {
	text := err.Error()
	switch code, _, _ := strings.Cut(text, " "); code {
	case "WRONGPASS", "NOAUTH":
		return "correct the user and the password in FIRSTTAP_REDIS_URL (escape / ? # and @ in them)"
	case "NOPERM":
		return "allow the user this command: " + grant(text)
	case "LOADING":
		return "wait until the server has loaded its data"
	case "READONLY":
		return "lead FIRSTTAP_REDIS_URL to the master, or name the sentinels: redis+sentinel://h1,h2,h3/name-of-the-master"
	case "OOM":
		return "raise maxmemory, or find out what fills it: redis-cli --bigkeys"
	case "MISCONF":
		return "make room on the server's disk, and look for the cause in its log: it can't save its data and refuses to write"
	case "NOREPLICAS":
		return "bring the replicas back, or lower min-replicas-to-write"
	case "CLUSTERDOWN":
		return "start the masters that are gone: redis-cli --cluster check"
	}
	if strings.Contains(text, "cluster support disabled") {
		return "want redis://host:port in FIRSTTAP_REDIS_URL, as the server is in no cluster"
	}
	if strings.Contains(text, "AUTH") {
		return "correct the user and the password in FIRSTTAP_REDIS_URL (escape / ? # and @ in them)"
	}
	if n := (net.Error)(nil); errors.As(err, &n) || errors.Is(err, context.DeadlineExceeded) {
		return "check that Redis runs at that address and that no firewall is between; until it answers, claims go through the database " +
			"alone"
	}
	return "check FIRSTTAP_REDIS_URL: rediss:// for TLS, redis:// without"
}

// each calls check with each server. The findings of those that fail, or else are doubtful, replace the others.
func (e *examination) each(check func(*node) doctor.Finding) doctor.Finding {
	worst := doctor.Finding{}
	rank := map[doctor.Status]int{doctor.OK: 1, doctor.Warning: 2, doctor.Fails: 3}
	for _, n := range e.nodes {
		f := check(n)
		if n.hidden != nil && f.Status == "" {
			f = doctor.Doubt("can't be seen: "+n.hidden.Error(), afterError(n.hidden))
		}
		if len(e.nodes) > 1 {
			f.Found = n.addr + ": " + f.Found
		}
		switch {
		case rank[f.Status] > rank[worst.Status]:
			worst = f
		case f.Status == worst.Status:
			worst.Found += "; " + f.Found
		}
	}
	return worst
}

func (e *examination) version(context.Context) doctor.Finding {
	return e.each(func(n *node) doctor.Finding {
		if n.hidden != nil {
			return doctor.Finding{}
		}
		version := n.info["Server"]["redis_version"]
		major, _, _ := strings.Cut(version, ".")
		const least = 7 // SET with both NX and GET
		if m, err := strconv.Atoi(major); err != nil || m < least {
			return doctor.Failure(version+" has no SET with NX and GET", "update Redis to 7.0 or later")
		}
		return doctor.Good(version)
	})
}

func (e *examination) role(context.Context) doctor.Finding {
	return e.each(func(n *node) doctor.Finding {
		if n.hidden != nil {
			return doctor.Finding{}
		}
		replication := n.info["Replication"]
		if role := replication["role"]; role != "master" {
			return doctor.Failure("the server is a "+role+" and takes no writes", "lead FIRSTTAP_REDIS_URL to the master, which is "+
				net.JoinHostPort(replication["master_host"], replication["master_port"]))
		}
		return doctor.Good("takes writes, connected replicas: " + cmp.Or(replication["connected_slaves"], "0"))
	})
}

func (e *examination) eviction(context.Context) doctor.Finding {
	return e.each(func(n *node) doctor.Finding {
		if n.hidden != nil {
			return doctor.Finding{}
		}
		memory := n.info["Memory"]
		policy := memory["maxmemory_policy"]
		if policy != "noeviction" {
			return doctor.Failure("maxmemory-policy is "+policy+": Redis may evict a lock that is held",
				"CONFIG SET maxmemory-policy noeviction, and the same in redis.conf")
		}
		used, _ := strconv.ParseInt(memory["used_memory"], 10, 64)
		buffers, _ := strconv.ParseInt(memory["mem_not_counted_for_evict"], 10, 64)
		limit, _ := strconv.ParseInt(memory["maxmemory"], 10, 64)
		found := fmt.Sprintf("%s; memory used: %s of %s", policy, memory["used_memory_human"], memory["maxmemory_human"])
		const next = "raise maxmemory, or find out what fills it: redis-cli --bigkeys"
		switch used -= buffers; {
		case limit == 0:
			return doctor.Good(policy)
		case used >= limit:
			return doctor.Failure(found+": Redis is full and refuses every lock", next)
		case used > limit/10*9:
			return doctor.Doubt(found+": when it is full, Redis refuses every lock", next)
		}
		return doctor.Good(found)
	})
}

// permissions is a script that writes nothing: it asks Redis which of the commands in ARGV the user may not send.
const permissions = `
local refused = {}
for _, use in ipairs(cjson.decode(ARGV[1])) do
  local known, allowed = pcall(redis.acl_check_cmd, unpack(use))
  if not known or not allowed then refused[#refused + 1] = table.concat(use, " ") end
end
return refused`

// scripts runs a script, and finds out with it whether the user may send every command.
func (e *examination) scripts(ctx context.Context) doctor.Finding {
	uses, err := json.Marshal(e.uses)
	if err != nil {
		return doctor.Failure(err.Error(), "")
	}
	return e.each(func(n *node) doctor.Finding {
		refused, err := n.client.Eval(ctx, permissions, nil, string(uses)).StringSlice()
		switch {
		case err != nil:
			return doctor.Failure("no script runs: "+err.Error(), afterError(err))
		case len(refused) > 0:
			return doctor.Failure("the user may not send: "+strings.Join(refused, "; "),
				"allow these commands, and the keys and channels that they name: ACL SETUSER ... "+grants(refused))
		}
		return doctor.Good(fmt.Sprintf("run, and the user may send all %d commands", len(e.uses)))
	})
}

// writes sends a command that is refused as a lock's is, and writes nothing: no key is there that it could change.
func (e *examination) writes(ctx context.Context) doctor.Finding {
	for _, use := range e.uses {
		if use[0] != "set" {
			continue
		}
		if err := e.client.Do(ctx, "SET", use[1], "v", "XX", "GET", "PX", "1").Err(); err != nil && !errors.Is(err, redis.Nil) {
			return doctor.Failure("a lock is refused: "+err.Error(), afterError(err))
		}
	}
	return doctor.Good("locks are not refused")
}

// pings is how many commands measure the latency.
const pings = 20

func (e *examination) latency(ctx context.Context) doctor.Finding {
	return e.each(func(n *node) doctor.Finding {
		took := make([]time.Duration, pings)
		for i := range took {
			asked := time.Now()
			if err := n.client.Ping(ctx).Err(); err != nil {
				return doctor.Failure(err.Error(), afterError(err))
			}
			took[i] = time.Since(asked)
		}
		slices.Sort(took)
		median, slowest := took[pings/2], took[pings-1]
		found := fmt.Sprintf("half of %d commands took %s or less, the slowest %s", pings, median.Round(10*time.Microsecond),
			slowest.Round(10*time.Microsecond))
		switch {
		case median >= e.tap:
			return doctor.Failure(fmt.Sprintf("%s; a tap waits for %s, and then goes to the database", found, e.tap),
				"move Redis nearer to the instances, or find out what slows it: redis-cli --latency")
		case slowest >= e.tap/4:
			return doctor.Doubt(found, "find out what slows Redis: redis-cli --latency, SLOWLOG GET")
		}
		return doctor.Good(found)
	})
}
