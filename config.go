package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firsttap/handler"
	"firsttap/lock"
)

// Config is every setting. Nothing else reads the environment.
type Config struct {
	Addr          string
	OpsAddr       string // "" turns the operations listener off
	DatabaseURL   string
	RedisURL      string // "" is in process
	AdminKey      string
	JWTSecret     string
	AcceptLockTTL time.Duration
	DriverRate    handler.Rate
	AdminRate     handler.Rate
	LogLevel      slog.Level
	// SecretFiles names where secrets were read or made that the environment does not give.
	SecretFiles []string
}

const (
	adminKeyVar  = "FIRSTTAP_ADMIN_KEY"
	jwtSecretVar = "FIRSTTAP_JWT_SECRET"
)

// ReadConfig reads the settings and reports every problem at once. It makes nothing yet: see MakeSecrets.
func ReadConfig(lookup func(string) (string, bool)) (Config, error) {
	var problems []error
	bad := func(name string, err error) {
		problems = append(problems, fmt.Errorf("%s: %w", name, err))
	}
	get := func(name, otherwise string) string {
		if v, _ := lookup(name); v != "" {
			return v
		}
		return otherwise
	}
	c := Config{
		Addr:        get("FIRSTTAP_ADDR", ":8080"),
		OpsAddr:     "127.0.0.1:9090",
		DatabaseURL: get("FIRSTTAP_DATABASE_URL", "sqlite://firsttap.db"),
		RedisURL:    get("FIRSTTAP_REDIS_URL", ""),
		AdminKey:    get(adminKeyVar, ""),
		JWTSecret:   get(jwtSecretVar, ""),
	}
	if v, set := lookup("FIRSTTAP_OPS_ADDR"); set {
		c.OpsAddr = v
	}
	var err error
	if _, _, err = net.SplitHostPort(c.Addr); err != nil {
		bad("FIRSTTAP_ADDR", err)
	}
	if _, _, err = net.SplitHostPort(c.OpsAddr); err != nil && c.OpsAddr != "" {
		bad("FIRSTTAP_OPS_ADDR", err)
	}
	if c.RedisURL != "" {
		if client, err := lock.Dial(c.RedisURL, time.Second); err != nil {
			bad("FIRSTTAP_REDIS_URL", err)
		} else {
			client.Close()
		}
	}
	if c.AcceptLockTTL, err = time.ParseDuration(get("FIRSTTAP_ACCEPT_LOCK_TTL", "5s")); err != nil {
		bad("FIRSTTAP_ACCEPT_LOCK_TTL", err)
	} else if c.AcceptLockTTL < minLockTTL {
		bad("FIRSTTAP_ACCEPT_LOCK_TTL", fmt.Errorf("%s is shorter than a claim may take, %s", c.AcceptLockTTL, minLockTTL))
	}
	if c.DriverRate, err = handler.ParseRate(get("FIRSTTAP_RATE_LIMIT_DRIVER", "20/s")); err != nil {
		bad("FIRSTTAP_RATE_LIMIT_DRIVER", err)
	}
	if c.AdminRate, err = handler.ParseRate(get("FIRSTTAP_RATE_LIMIT_ADMIN", "100/s")); err != nil {
		bad("FIRSTTAP_RATE_LIMIT_ADMIN", err)
	}
	if err = c.LogLevel.UnmarshalText([]byte(get("FIRSTTAP_LOG", "info"))); err != nil {
		bad("FIRSTTAP_LOG", errors.New("want debug, info, warn or error"))
	}
	for _, err := range c.checkDatabase() {
		bad("FIRSTTAP_DATABASE_URL", err)
	}
	return c, errors.Join(problems...)
}

// minLockTTL keeps a healthy claim from outliving its lock.
const minLockTTL = time.Second

func (c *Config) checkDatabase() []error {
	scheme, path, _ := strings.Cut(c.DatabaseURL, "://")
	switch scheme {
	case "sqlite":
		if path == "" || strings.Contains(path, ":memory:") {
			return []error{errors.New("SQLite needs a file: what was accepted has to survive")}
		}
		return nil
	case "mysql":
	default:
		return []error{errors.New("want sqlite://path or mysql://user:password@host:port/name")}
	}
	var problems []error
	for name, v := range map[string]string{adminKeyVar: c.AdminKey, jwtSecretVar: c.JWTSecret} {
		if v == "" {
			problems = append(problems, fmt.Errorf("%s must be set too: every instance on a server needs the same one", name))
		}
	}
	return problems
}

// MakeSecrets reads the secrets that the environment does not give from files beside the SQLite database, and makes
// them where there are none.
func (c *Config) MakeSecrets() error {
	path := strings.TrimPrefix(c.DatabaseURL, "sqlite://")
	base := strings.TrimSuffix(path, filepath.Ext(path))
	for _, s := range []struct {
		value *string
		file  string
	}{{&c.AdminKey, base + ".admin-key"}, {&c.JWTSecret, base + ".jwt-secret"}} {
		if *s.value != "" {
			continue
		}
		var err error
		if *s.value, err = secretFile(s.file); err != nil {
			return err
		}
		c.SecretFiles = append(c.SecretFiles, s.file)
	}
	return nil
}

// secretFile returns what the file holds, and fills it first if it is not there. Of two processes that fill it at
// the same time one wins, and both read its secret.
func secretFile(name string) (string, error) {
	if secret, err := os.ReadFile(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return strings.TrimSpace(string(secret)), err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + rand.Text() + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(tmp.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	secret, err := os.ReadFile(name)
	return strings.TrimSpace(string(secret)), err
}
