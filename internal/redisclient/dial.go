// Package redisclient connects to Redis: from a URL, and with one timeout for every step.
package redisclient

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// idleTime is how long a connection may be unused before it is closed here. That is shorter than the timeouts of servers and proxies: a
// command that is sent while the other side closes the connection fails, and with TLS a closed connection is not noticed before.
const idleTime = 4 * time.Second

// Dial returns a client for redis://host:port/db, redis+sentinel://h1,h2,h3/master/db or redis+cluster://h1,h2,h3, each optionally with
// user:password@. With rediss instead of redis, all connections have TLS. The options sentinel_username and sentinel_password are for the
// sentinels. It does not connect. The client waits no longer than timeout for each of a connection from
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
	opts.ConnMaxIdleTime = idleTime
	return redis.NewUniversalClient(opts), nil
}

var errURL = errors.New(
	"a Redis URL is redis://host:port/db, redis+sentinel://h1,h2,h3/master or redis+cluster://h1,h2,h3, with rediss for TLS",
)

// parseURL refuses what would be ignored. An error contains no value of the URL.
func parseURL(rawURL string) (*redis.UniversalOptions, error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	if !found || scheme != "redis" && scheme != "rediss" {
		return nil, errURL
	}
	// url.Parse refuses several hosts with ports, so the rest is parsed with a placeholder host. A user or password may contain / ? and #
	// only if they are escaped.
	rest, query, _ := strings.Cut(rest, "?")
	credentials, hosts, found := cutLast(rest, "@")
	if !found {
		credentials, hosts = "", rest
	}
	hosts, path, _ := strings.Cut(hosts, "/")
	u, err := url.Parse("redis://" + credentials + "@host/" + path)
	if err != nil || hosts == "" || u.Host != "host" || u.Fragment != "" || strings.Contains(query, "#") {
		return nil, errURL
	}
	opts := &redis.UniversalOptions{Username: u.User.Username()}
	opts.Password, _ = u.User.Password()
	if opts.Username != "" && opts.Password == "" {
		return nil, fmt.Errorf("%w: the user has no password; a password alone is redis://:password@host", errURL)
	}
	database, defaultPort := strings.Trim(u.Path, "/"), "6379"
	switch kind {
	case "":
		if strings.Contains(hosts, ",") {
			return nil, fmt.Errorf("%w: several servers are sentinels or a cluster", errURL)
		}
	case "cluster":
		opts.IsClusterMode = true
		if database != "" && database != "0" {
			return nil, fmt.Errorf("%w: a cluster has one database only", errURL)
		}
	case "sentinel":
		defaultPort = "26379"
		if opts.MasterName, database, _ = strings.Cut(database, "/"); opts.MasterName == "" {
			return nil, fmt.Errorf("%w: the name of the master is missing", errURL)
		}
	default:
		return nil, errURL
	}
	if database != "" {
		if opts.DB, err = strconv.Atoi(database); err != nil || opts.DB < 0 {
			return nil, errURL
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := withPort(host, defaultPort)
		if err != nil {
			return nil, errURL
		}
		opts.Addrs = append(opts.Addrs, addr)
	}
	if scheme == "rediss" {
		opts.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // the name in the certificate is the host that is dialed
	}
	return opts, setOptions(opts, query)
}

// setOptions reads the options after the question mark.
func setOptions(opts *redis.UniversalOptions, query string) error {
	options, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: the options can't be parsed", errURL)
	}
	for name, values := range options {
		switch {
		case opts.MasterName == "":
			return fmt.Errorf("%w: only redis+sentinel:// takes options", errURL)
		case len(values) > 1:
			return fmt.Errorf("%w: an option is given twice", errURL)
		case name == "sentinel_username":
			opts.SentinelUsername = values[0]
		case name == "sentinel_password":
			opts.SentinelPassword = values[0]
		default:
			return fmt.Errorf("%w: its only options are sentinel_username and sentinel_password", errURL)
		}
	}
	if opts.SentinelUsername != "" && opts.SentinelPassword == "" {
		return fmt.Errorf("%w: sentinel_username needs sentinel_password", errURL)
	}
	return nil
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
