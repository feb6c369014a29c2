package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"firsttap/internal/limit"
	"firsttap/internal/redisclient"
	"firsttap/repository/database"
	"firsttap/repository/retention"
)

// Config holds every setting.
type Config struct {
	Roles         []string // what the instance does, of RoleAPI, RoleRelay and RoleJobs
	Addr          string
	OpsAddr       string // "" for no operations listener
	DatabaseURL   string
	ReadURL       string // a replica of the database; "" for none
	Migrate       bool   // migrate the database at the start; otherwise only by command
	RedisURL      string // "" for none: claims are decided by the database alone
	Namespace     string // begins the keys in Redis that only the instances of one installation share
	AdminKey      string
	JWTSecret     string
	AcceptLockTTL time.Duration
	JobLock       string
	QuorumURLs    []string
	LockLease     time.Duration // of locks that are renewed; 0 for what each has by itself
	Jobs          []JobSetting
	Push          Push
	// PrivateWebhooks allows webhooks to be sent by http and to every address, for development.
	PrivateWebhooks bool
	DriverRate      limit.Rate
	AdminRate       limit.Rate
	LogLevel        slog.Level
	// AllowedOrigins are the origins of hybrid apps whose scripts may call the driver API.
	AllowedOrigins []string
	// Drain is how long an instance goes on serving after SIGTERM while it reports that it is not ready.
	Drain     time.Duration
	Tracing   bool // spans are sent where OTEL_EXPORTER_OTLP_ENDPOINT says
	Retention retention.Periods
	// Timeouts holds times that no setting changes; tests do. Zero means the default.
	Timeouts Timeouts
	// SecretFiles names the files of secrets that the environment does not give.
	SecretFiles []string
	// NewSecretFiles names those of them that MakeSecrets has created.
	NewSecretFiles []string
	// Changed are the settings that differ from their defaults, as they may be shown: no secret, and of a URL the kind only.
	Changed map[string]string
	// PreviousJWTSecret still verifies tokens and sessions, but signs none; "" for none.
	PreviousJWTSecret string
}

const (
	adminKeyVar  = "FIRSTTAP_ADMIN_KEY"
	jwtSecretVar = "FIRSTTAP_JWT_SECRET"
	readURLVar   = "FIRSTTAP_DATABASE_READ_URL"
)

// Problem is what is wrong with a setting.
type Problem struct {
	Setting string
	Err     error
}

func (p *Problem) Error() string { return p.Setting + ": " + p.Err.Error() }

func (p *Problem) Unwrap() error { return p.Err }

// Problems returns what an error of Read joins.
func Problems(err error) []*Problem {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	var all []*Problem
	for _, e := range joined.Unwrap() {
		if p := (*Problem)(nil); errors.As(e, &p) {
			all = append(all, p)
		}
	}
	return all
}

// Read reads the settings and reports every problem at once, as a join of Problems. It writes no file; MakeSecrets does. names are those
// of all variables of the environment: one that begins as a setting and is none is a problem, too.
func Read(lookup func(string) (string, bool), names ...string) (Config, error) {
	var problems []error
	bad := func(name string, err error) {
		problems = append(problems, &Problem{name, err})
	}
	env := &environment{lookup: lookup, bad: bad, known: map[string]bool{"FIRSTTAP_OPS_ADDR": true}}
	changed := map[string]string{}
	get := func(name, otherwise string) string {
		v := env.value(name)
		if v == "" {
			return otherwise
		}
		if v != otherwise {
			changed[name] = shown(name, v)
		}
		return v
	}
	c := Config{
		Addr:        get("FIRSTTAP_ADDR", ":8080"),
		OpsAddr:     "127.0.0.1:9090",
		DatabaseURL: get("FIRSTTAP_DATABASE_URL", "sqlite://firsttap.db"),
		ReadURL:     get(readURLVar, ""),
		RedisURL:    get("FIRSTTAP_REDIS_URL", ""),
		Namespace:   get("FIRSTTAP_NAMESPACE", "firsttap"),
		AdminKey:    get(adminKeyVar, ""),
		JWTSecret:   get(jwtSecretVar, ""),
	}
	c.Changed = changed
	if v, set := lookup("FIRSTTAP_OPS_ADDR"); set {
		c.OpsAddr = v
		changed["FIRSTTAP_OPS_ADDR"] = v
	}
	var err error
	if err = CheckAddress(c.Addr); err != nil {
		bad("FIRSTTAP_ADDR", err)
	}
	if err = CheckAddress(c.OpsAddr); err != nil && c.OpsAddr != "" {
		bad("FIRSTTAP_OPS_ADDR", err)
	}
	if c.RedisURL != "" {
		if client, err := redisclient.Dial(c.RedisURL, time.Second); err != nil {
			bad("FIRSTTAP_REDIS_URL", err)
		} else {
			client.Close()
		}
	}
	if !namespace.MatchString(c.Namespace) {
		bad("FIRSTTAP_NAMESPACE", errors.New("want 1 to 32 small letters, digits, _ and -, as in acme-staging"))
	}
	if c.AcceptLockTTL, err = time.ParseDuration(get("FIRSTTAP_ACCEPT_LOCK_TTL", "5s")); err != nil {
		bad("FIRSTTAP_ACCEPT_LOCK_TTL", err)
	} else if c.AcceptLockTTL < minLockTTL {
		bad("FIRSTTAP_ACCEPT_LOCK_TTL", fmt.Errorf("%s is shorter than a claim may take, %s", c.AcceptLockTTL, minLockTTL))
	}
	if c.Migrate, err = readMigrate(get(migrateVar, "auto")); err != nil {
		bad(migrateVar, err)
	}
	c.JobLock, c.QuorumURLs = get("FIRSTTAP_JOB_LOCK", c.defaultJobLock()), splitList(get("FIRSTTAP_QUORUM_URLS", ""))
	if err = c.checkJobLock(); err != nil {
		bad("FIRSTTAP_JOB_LOCK", err)
	}
	if c.JobLock == "quorum" {
		if err = checkQuorum(c.QuorumURLs); err != nil {
			bad("FIRSTTAP_QUORUM_URLS", err)
		}
	} else if len(c.QuorumURLs) > 0 {
		bad("FIRSTTAP_QUORUM_URLS",
			fmt.Errorf("FIRSTTAP_JOB_LOCK is %s, which does not use them: set it to quorum, or leave them unset", c.JobLock))
	}
	if c.Roles, err = readRoles(get(rolesVar, "api,relay,jobs")); err != nil {
		bad(rolesVar, err)
	}
	if c.LockLease, err = readLockLease(get(lockLeaseVar, "")); err != nil {
		bad(lockLeaseVar, err)
	}
	if c.Jobs, err = readJobs(get(jobsVar, "")); err != nil {
		bad(jobsVar, err)
		c.Jobs = nil
	}
	if c.DriverRate, err = limit.ParseRate(get("FIRSTTAP_RATE_LIMIT_DRIVER", "20/s")); err != nil {
		bad("FIRSTTAP_RATE_LIMIT_DRIVER", err)
	}
	if c.AdminRate, err = limit.ParseRate(get("FIRSTTAP_RATE_LIMIT_ADMIN", "100/s")); err != nil {
		bad("FIRSTTAP_RATE_LIMIT_ADMIN", err)
	}
	if err = c.LogLevel.UnmarshalText([]byte(get("FIRSTTAP_LOG", "info"))); err != nil {
		bad("FIRSTTAP_LOG", errors.New("want debug, info, warn or error"))
	}
	c.AllowedOrigins = splitList(get(allowedOriginsVar, ""))
	if err = checkOrigins(c.AllowedOrigins); err != nil {
		bad(allowedOriginsVar, err)
	}
	if c.Drain, err = readDrain(get("FIRSTTAP_DRAIN", "5s")); err != nil {
		bad("FIRSTTAP_DRAIN", err)
	}
	if c.Retention, err = readRetention(get(retentionVar, "")); err != nil {
		bad(retentionVar, err)
	}
	if c.PrivateWebhooks, err = readBool(get(privateWebhooksVar, "false")); err != nil {
		bad(privateWebhooksVar, err)
	}
	c.Tracing = readTracing(get, bad)
	c.Push = readPush(get, bad)
	c.PreviousJWTSecret = get(previousSecretVar, "")
	c.checkSecrets(bad)
	if err = c.checkDatabase(); err != nil {
		bad("FIRSTTAP_DATABASE_URL", err)
	}
	if err = c.checkReadURL(); err != nil {
		bad(readURLVar, err)
	}
	env.checkNames(names)
	return c, errors.Join(problems...)
}

// shown is a setting as the log may have it.
func shown(name, value string) string {
	kind, _, isURL := strings.Cut(value, "://")
	switch {
	case isURL:
		return kind + "://..."
	case strings.Contains(name, "SECRET") || strings.Contains(name, "_URL") || strings.HasSuffix(name, "_KEY"):
		return "set"
	}
	return value
}

// WithoutSecrets is an error of Read for a command that needs no secret: without the problems of the secrets.
func WithoutSecrets(err error) error {
	var rest []error
	for _, p := range Problems(err) {
		if !slices.Contains([]string{adminKeyVar, jwtSecretVar, previousSecretVar}, strings.TrimSuffix(p.Setting, fileEnding)) {
			rest = append(rest, p)
		}
	}
	return errors.Join(rest...)
}

// CheckAddress returns an error unless addr is host:port with a valid port.
func CheckAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port", port)
	}
	return nil
}

func (c *Config) defaultJobLock() string {
	if c.RedisURL != "" {
		return "redis"
	}
	return "table"
}

func (c *Config) checkJobLock() error {
	switch c.JobLock {
	case "table", "quorum", "memory":
		return nil
	case "redis":
		if c.RedisURL == "" {
			return errors.New("redis needs FIRSTTAP_REDIS_URL")
		}
		return nil
	case "named", "rows":
		if !strings.HasPrefix(c.DatabaseURL, "mysql://") {
			return fmt.Errorf("%s needs MySQL or MariaDB", c.JobLock)
		}
		return nil
	}
	return errors.New("want redis, quorum, table, named, rows or memory")
}

// checkQuorum returns an error unless urls are an odd number of different servers, three at least.
func checkQuorum(urls []string) error {
	if len(urls) < 3 || len(urls)%2 == 0 {
		return fmt.Errorf("a quorum has 3, 5, 7, ... servers, not %d", len(urls))
	}
	seen := map[string]bool{}
	for _, url := range urls {
		scheme, _, _ := strings.Cut(url, "://")
		client, err := redisclient.Dial(url, time.Second)
		switch {
		case err != nil:
			return err
		case scheme != "redis" && scheme != "rediss":
			err = errors.New("a server of a quorum must be a single one: want redis:// or rediss://")
		case seen[url]:
			err = errors.New("a server is named twice")
		}
		client.Close()
		if err != nil {
			return err
		}
		seen[url] = true
	}
	return nil
}

// splitList splits s at its commas.
func splitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// minLockTTL keeps a claim that is not stuck from outliving its lock.
const minLockTTL = time.Second

// namespace is what a namespace may be: a Redis Cluster reads braces in a key, and ShedLock's keys have colons between their parts.
var namespace = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// escaped is a character that a URL has escaped.
var escaped = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func (c *Config) checkDatabase() error {
	scheme, path, _ := strings.Cut(c.DatabaseURL, "://")
	switch scheme {
	case "sqlite":
		switch {
		case path == "" || strings.Contains(path, ":memory:"):
			return errors.New("SQLite needs a file, because accepted dispatches must survive a restart")
		case strings.ContainsAny(path, "?#"):
			return errors.New("SQLite has no options: want sqlite://path, without ? and #")
		case strings.HasPrefix(path, "file:") || escaped.MatchString(path):
			return errors.New("SQLite's path is taken as it is written: want sqlite://path, without file: and escapes like %20")
		}
		return nil
	case "mysql":
		return database.CheckURL(c.DatabaseURL)
	}
	return errors.New("want sqlite://path or mysql://user:password@host:port/name")
}

// checkReadURL returns an error unless there is no replica, or one that the database can have.
func (c *Config) checkReadURL() error {
	switch {
	case c.ReadURL == "":
		return nil
	case !strings.HasPrefix(c.ReadURL, "mysql://"):
		return errors.New("want mysql://user:password@host:port/name")
	case !strings.HasPrefix(c.DatabaseURL, "mysql://"):
		return errors.New("only a MySQL or MariaDB has replicas, and FIRSTTAP_DATABASE_URL names none")
	case c.ReadURL == c.DatabaseURL:
		return errors.New("it is FIRSTTAP_DATABASE_URL, the primary itself: name a replica, or leave it unset")
	}
	return database.CheckURL(c.ReadURL)
}

// Timeouts are limits that no setting changes; tests of faults make them longer or shorter. Zero is the limit that applies in service.
type Timeouts struct {
	// Redis bounds the delay of a request when Redis stops answering.
	Redis time.Duration
	// Stream bounds each Redis command of the live streams.
	Stream time.Duration
	// Claim bounds the decision about a tap, and each reply of the database to it.
	Claim time.Duration
	// PushLease is how long a push stays leased to an instance that died; longer than Push.
	PushLease time.Duration
	// Push bounds the wait for the push service's answer to one attempt; 0 is 15 s.
	Push time.Duration
	// Stop is how long requests and pushes under way may take to finish when the instance stops; 0 is 10 s.
	Stop time.Duration
	// JobLock bounds the wait for each Redis server that holds the locks of jobs. Those in MySQL keep their limits.
	JobLock time.Duration
}
