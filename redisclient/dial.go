// Package redisclient connects to Redis: from a URL, and with one timeout for every step.
package redisclient

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dial returns a client for redis://, rediss://, redis+sentinel://h1,h2,h3/master or redis+cluster://h1,h2,h3, each
// optionally with user:password@. It does not connect. The client waits no longer than timeout for each of a connection from
// the pool, the dialing, the write and the read. It sends no command again; that of a cluster does, up to three times, if
// a command got no reply or a passing error.
func Dial(rawURL string, timeout time.Duration) (redis.UniversalClient, error) {
	opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opts.MaxRetries = -1
	opts.ContextTimeoutEnabled = true
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout, opts.PoolTimeout = timeout, timeout, timeout, timeout
	opts.DialerRetries = 1
	opts.DisableIdentity = true
	return redis.NewUniversalClient(opts), nil
}

var errURL = errors.New("a Redis URL is redis://host:port/db, rediss://..., redis+sentinel://h1,h2,h3/master or redis+cluster://h1,h2,h3")

func parseURL(rawURL string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return nil, errURL
	}
	opts := &redis.UniversalOptions{}
	switch scheme {
	case "redis", "rediss":
		single, err := redis.ParseURL(rawURL)
		if err != nil {
			return nil, errURL // err contains the password
		}
		opts.Addrs = []string{single.Addr}
		opts.DB, opts.Username, opts.Password, opts.TLSConfig = single.DB, single.Username, single.Password, single.TLSConfig
		return opts, nil
	case "redis+sentinel", "redis+cluster":
	default:
		return nil, errURL
	}
	// url.Parse refuses several hosts with ports, so the credentials and the path are parsed with a placeholder host.
	credentials, hosts, found := cutLast(rest, "@")
	if !found {
		credentials, hosts = "", rest
	}
	hosts, path, _ := strings.Cut(hosts, "/")
	u, err := url.Parse("redis://" + credentials + "@host/" + path)
	if err != nil || hosts == "" || u.Host != "host" || u.RawQuery != "" || u.Fragment != "" { // a user or password may contain / ? and # only if they are escaped
		return nil, errURL
	}
	defaultPort := "26379"
	if scheme == "redis+cluster" {
		defaultPort = "6379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := withPort(host, defaultPort)
		if err != nil {
			return nil, errURL
		}
		opts.Addrs = append(opts.Addrs, addr)
	}
	opts.Username = u.User.Username()
	opts.Password, _ = u.User.Password()
	if scheme == "redis+cluster" {
		if db := strings.Trim(u.Path, "/"); db != "" && db != "0" {
			return nil, fmt.Errorf("%w: a cluster has one database only", errURL)
		}
		opts.IsClusterMode = true
		return opts, nil
	}
	master, db, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if opts.MasterName = master; master == "" {
		return nil, fmt.Errorf("%w: the name of the master is missing", errURL)
	}
	if db != "" {
		if opts.DB, err = strconv.Atoi(db); err != nil {
			return nil, errURL
		}
	}
	return opts, nil
}

// withPort returns host:port, with defaultPort if addr has no port.
func withPort(addr, defaultPort string) (string, error) {
	u, err := url.Parse("redis://" + addr)
	if err != nil || u.Hostname() == "" || u.Host != addr {
		return "", errURL
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPort)), nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
