package config

import (
	"os"
	"strings"
	"testing"

	"firsttap/testkit"
)

func TestDefaults(t *testing.T) {
	c, err := Read(testkit.Environment())
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != ":8080" || c.OpsAddr != "127.0.0.1:9090" || c.DatabaseURL != "sqlite://firsttap.db" || c.RedisURL != "" ||
		c.AcceptLockTTL.String() != "5s" || c.DriverRate != 20 || c.AdminRate != 100 {
		t.Errorf("%+v", c)
	}
	if c, err = Read(testkit.Environment("FIRSTTAP_OPS_ADDR=")); err != nil || c.OpsAddr != "" {
		t.Errorf("empty does not turn the operations off: %q, %v", c.OpsAddr, err)
	}
}

// One message names every problem.
func TestBadSettings(t *testing.T) {
	_, err := Read(testkit.Environment("FIRSTTAP_ADDR=8080", "FIRSTTAP_OPS_ADDR=x", "FIRSTTAP_REDIS_URL=http://x",
		"FIRSTTAP_ACCEPT_LOCK_TTL=5", "FIRSTTAP_RATE_LIMIT_DRIVER=20", "FIRSTTAP_RATE_LIMIT_ADMIN=NaN/s", "FIRSTTAP_LOG=loud",
		"FIRSTTAP_DATABASE_URL=mysql://u:hunter2@h/d"))
	if err == nil {
		t.Fatal("started")
	}
	for _, name := range []string{
		"FIRSTTAP_ADDR", "FIRSTTAP_OPS_ADDR", "FIRSTTAP_REDIS_URL", "FIRSTTAP_ACCEPT_LOCK_TTL", "FIRSTTAP_RATE_LIMIT_DRIVER",
		"FIRSTTAP_RATE_LIMIT_ADMIN", "FIRSTTAP_LOG", "FIRSTTAP_ADMIN_KEY", "FIRSTTAP_JWT_SECRET",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %q", name, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("a password is told")
	}
	for _, url := range []string{"sqlite://", "sqlite://:memory:", "postgres://x", "firsttap.db"} {
		if _, err := Read(testkit.Environment("FIRSTTAP_DATABASE_URL=" + url)); err == nil {
			t.Errorf("%s was taken", url)
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	read := func() Config {
		c, err := Read(testkit.Environment("FIRSTTAP_DATABASE_URL=sqlite://" + dir + "/a.db"))
		if err == nil {
			err = c.MakeSecrets()
		}
		if err != nil {
			t.Error(err)
		}
		return c
	}
	made := make(chan Config, 8)
	gate := make(chan struct{})
	for range cap(made) {
		go func() { <-gate; made <- read() }()
	}
	close(gate)
	first := <-made
	for range cap(made) - 1 {
		if c := <-made; c.AdminKey != first.AdminKey || c.JWTSecret != first.JWTSecret {
			t.Error("two that started together do not agree")
		}
	}
	if len(first.AdminKey) < 32 || first.AdminKey == first.JWTSecret {
		t.Errorf("%q, %q", first.AdminKey, first.JWTSecret)
	}
	for _, name := range first.SecretFiles {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
