package systemtest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"firsttap/internal/app"
	"firsttap/internal/config"
	"firsttap/internal/testkit"
)

// startup is a service in this process from its start on.
type startup struct {
	*Instance
	stop  context.CancelFunc
	ended chan error
}

func startUp(t *testing.T, databaseURL string, more ...string) *startup {
	t.Helper()
	c, err := config.Read(testkit.Settings(append(more, "FIRSTTAP_ADDR", testkit.FreeAddress(t), "FIRSTTAP_OPS_ADDR", "",
		"FIRSTTAP_ADMIN_KEY", AdminKey, "FIRSTTAP_JWT_SECRET", JWTSecret, "FIRSTTAP_DATABASE_URL", databaseURL, "FIRSTTAP_DRAIN", "0")...))
	if err != nil {
		t.Fatal(err)
	}
	c.Timeouts = config.Timeouts{Claim: testkit.Patience, JobLock: testkit.Patience}
	ctx, stop := context.WithCancel(context.Background())
	s := &startup{Instance: &Instance{T: t, URL: "http://" + c.Addr, log: &testkit.LogBuffer{}}, stop: stop, ended: make(chan error, 1)}
	var running sync.WaitGroup
	running.Go(func() {
		s.ended <- app.Serve(ctx, c, slog.New(slog.DiscardHandler), func(r app.Ready) { fmt.Fprintln(s.log, "listens on", r.URL) })
	})
	t.Cleanup(func() { Client.CloseIdleConnections(); stop(); running.Wait() })
	return s
}

// While another process holds the migrations' lock, an instance is alive and not ready, and says so in every response.
func TestServesWhileItMigrates(t *testing.T) {
	t.Parallel()
	onEmptyServers(t, func(t *testing.T, url string) {
		other, err := OpenDatabase(t, url).DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		const name = "CONCAT('firsttap.migrate:', LEFT(SHA2(DATABASE(), 256), 32))"
		lock := func() {
			t.Helper()
			if _, err := other.ExecContext(t.Context(), "DO GET_LOCK("+name+", 60)"); err != nil {
				t.Fatal(err)
			}
		}
		lock()
		s := startUp(t, url)
		testkit.Within(t, startOrEnd, "it lives", func() bool { return send("GET", s.URL+"/livez", "", "").status == 200 })
		if a := s.readyz(); a.status != 503 || a.Status != "migrating" {
			t.Errorf("readyz: %s", a)
		}
		for _, path := range []string{"/v1/me/offers", "/console/", "/v1/admin/board", "/nothing"} {
			a := send("GET", s.URL+path, AdminKey, "")
			if a.status != 503 || a.Code != "UNAVAILABLE" || a.header.Get("Retry-After") == "" ||
				a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("X-Request-Id") == "" {
				t.Errorf("%s: %s", path, a)
			}
		}
		if s.log.Count("listens") > 0 {
			t.Errorf("it says %q before it is ready", s.log)
		}
		// It can be stopped meanwhile, and the next one starts over.
		s.stop()
		if err := <-s.ended; err != nil {
			t.Errorf("stopped while it migrates: %v", err)
		}
		s = startUp(t, url)
		testkit.Within(t, startOrEnd, "it lives", func() bool { return send("GET", s.URL+"/livez", "", "").status == 200 })
		if _, err := other.ExecContext(t.Context(), "DO RELEASE_LOCK("+name+")"); err != nil {
			t.Fatal(err)
		}
		testkit.Within(t, startOrEnd, "it is ready", s.isReady)
		testkit.Eventually(t, "it says so", func() bool { return s.log.Count("listens on "+s.URL) > 0 })
		s.must(200, "GET", "/v1/admin/board", AdminKey, "")
	})
}

// With FIRSTTAP_MIGRATE=off an instance starts only on a database that has all its migrations; newer ones do no harm.
func TestMigrateOff(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, url string) {
		off := []string{"FIRSTTAP_MIGRATE", "off"}
		refused := func() {
			t.Helper()
			err := <-startUp(t, url, off...).ended
			if err == nil || !strings.Contains(err.Error(), "firsttap migrate up") || !strings.Contains(err.Error(), "migrations are not applied") {
				t.Fatalf("got %v", err)
			}
		}
		starts := func(more ...string) {
			t.Helper()
			s := startUp(t, url, more...)
			testkit.Within(t, startOrEnd, "it is ready", s.isReady)
			s.stop()
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
		}
		env := testkit.Settings("FIRSTTAP_DATABASE_URL", url, "FIRSTTAP_ADMIN_KEY", AdminKey,
			"FIRSTTAP_JWT_SECRET", JWTSecret, "FIRSTTAP_MIGRATE", "off")
		migrate := func(args ...string) {
			t.Helper()
			if _, err := command(t, env, append([]string{"migrate"}, args...)...); err != nil {
				t.Fatal(err)
			}
		}
		refused()
		db := OpenDatabase(t, url)
		if strings.HasPrefix(url, "mysql") {
			if n := db.Count("information_schema.tables WHERE table_schema = DATABASE()"); n != 0 {
				t.Errorf("a start that was refused has made %d tables", n)
			}
		}
		migrate("up")
		starts(off...)
		migrate("down", "--yes")
		refused()
		migrate("up")
		if _, err := db.DB.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)"); err != nil {
			t.Fatal(err)
		}
		starts(off...)
		starts()
	}
	onEmptyServers(t, test)
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite://"+filepath.Join(t.TempDir(), "off.db")) })
	t.Run("another value", func(t *testing.T) {
		if _, err := config.Read(testkit.Settings("FIRSTTAP_MIGRATE", "maybe")); err == nil || !strings.Contains(err.Error(), "want auto or off") {
			t.Errorf("got %v", err)
		}
	})
}
