package redisclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/doctor"
)

// allSlots is the number of slots of a cluster.
const allSlots = 16384

// cluster checks that each slot has a master and that each master answers.
func (e *examination) cluster(ctx context.Context) doctor.Finding {
	const next = "start the masters that are gone, or give their slots to others: redis-cli --cluster check, redis-cli --cluster fix"
	if len(e.lost) > 0 {
		return doctor.Failure(fmt.Sprintf("masters that do not answer: %s; others: %d", strings.Join(e.lost, ", "), len(e.nodes)), next)
	}
	return e.each(func(n *node) doctor.Finding {
		text, err := n.client.ClusterInfo(ctx).Result()
		if err != nil {
			return doctor.Failure(err.Error(), afterError(err))
		}
		info := map[string]string{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
		slots, _ := strconv.Atoi(info["cluster_slots_ok"])
		if info["cluster_state"] != "ok" || slots != allSlots {
			found := fmt.Sprintf("cluster_state is %s, and %d of %d slots have a master", info["cluster_state"], slots, allSlots)
			return doctor.Failure(found, next)
		}
		return doctor.Good(fmt.Sprintf("cluster_state is ok, %d slots, nodes: %s", slots, info["cluster_known_nodes"]))
	})
}

// sentinel is what one sentinel says.
type sentinel struct {
	addr   string
	master string
	// refused is why it would lead no failover, silent why it does not answer.
	refused, silent error
}

// askSentinels asks all sentinels at once.
func askSentinels(ctx context.Context, opts *redis.UniversalOptions) []sentinel {
	all := make([]sentinel, len(opts.Addrs))
	var asking sync.WaitGroup
	for i, addr := range opts.Addrs {
		asking.Go(func() { all[i] = askSentinel(ctx, addr, opts) })
	}
	asking.Wait()
	return all
}

func askSentinel(ctx context.Context, addr string, opts *redis.UniversalOptions) sentinel {
	s, master := sentinel{addr: addr}, opts.MasterName
	c := redis.NewSentinelClient(&redis.Options{
		Addr: addr, Username: opts.SentinelUsername, Password: opts.SentinelPassword, TLSConfig: opts.TLSConfig,
		MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: examineTimeout, ReadTimeout: examineTimeout, WriteTimeout: examineTimeout,
	})
	defer c.Close()
	at, err := c.GetMasterAddrByName(ctx, master).Result()
	var answered redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		s.refused = fmt.Errorf("it knows no master %q", master)
		return s
	case errors.As(err, &answered):
		s.refused = err
		return s
	case err != nil:
		s.silent = err
		return s
	case len(at) == 2:
		s.master = net.JoinHostPort(at[0], at[1])
	}
	if err := c.CkQuorum(ctx, master).Err(); errors.As(err, &answered) {
		s.refused = err
	} else {
		s.silent = err
	}
	return s
}

// examineSentinels checks that the sentinels answer, agree on the master, and are enough for a failover.
func examineSentinels(ctx context.Context, opts *redis.UniversalOptions) doctor.Finding {
	var silent, refused []string
	masters := map[string]bool{}
	for _, s := range askSentinels(ctx, opts) {
		switch {
		case s.silent != nil:
			silent = append(silent, fmt.Sprintf("%s (%v)", s.addr, s.silent))
		case s.refused != nil:
			refused = append(refused, fmt.Sprintf("%s: %v", s.addr, s.refused))
		}
		if s.master != "" {
			masters[s.master] = true
		}
	}
	next := "start the sentinels that are gone, and check the master's name: redis-cli -p 26379 SENTINEL CKQUORUM " + opts.MasterName
	if all := strings.Join(append(refused, silent...), " "); strings.Contains(all, "NOAUTH") || strings.Contains(all, "WRONGPASS") {
		next = "the sentinels have a password of their own, even if it is the master's: set the option, " +
			"redis+sentinel://...?sentinel_password=..., " +
			"and sentinel_username if they have users"
	} else if strings.Contains(all, "NOPERM") {
		next = "allow the sentinels' user: " + grant(all)
	}
	willing := len(opts.Addrs) - len(silent) - len(refused)
	found := fmt.Sprintf("%d of %d sentinels see a quorum", willing, len(opts.Addrs))
	if problems := slices.Concat(refused, silent); len(problems) > 0 {
		found += "; " + strings.Join(problems, "; ")
	}
	switch {
	case len(masters) > 1:
		return doctor.Failure(found+"; they name different masters: "+strings.Join(slices.Sorted(maps.Keys(masters)), ", "),
			"wait until a failover is finished, or correct the sentinels that are wrong")
	case len(refused) > 0 || willing <= len(opts.Addrs)/2:
		return doctor.Failure(found, next)
	case len(silent) > 0:
		return doctor.Doubt(found, next)
	}
	return doctor.Good(found)
}

// masterAddr is what the sentinels say, "" if none answers.
func masterAddr(ctx context.Context, opts *redis.UniversalOptions) string {
	for _, s := range askSentinels(ctx, opts) {
		if s.master != "" {
			return s.master
		}
	}
	return ""
}
