package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"firsttap/internal/config"
	"firsttap/internal/testkit"
	"firsttap/loadtest"
	"firsttap/systemtest"
)

func TestVersionAndHelp(t *testing.T) {
	t.Chdir(t.TempDir())
	broken := testkit.Settings("FIRSTTAP_DATABASE_URL", "nonsense") // no settings are no reason to refuse help
	if out, err := commandOf(t, broken, "version"); err != nil || out != "firsttap 1.0.0\n" {
		t.Errorf("%q, %v", out, err)
	}
	for _, arg := range []string{"help", "-h", "--help"} {
		out, err := commandOf(t, broken, arg)
		if err != nil {
			t.Errorf("%s: %v", arg, err)
		}
		for _, usage := range []string{"[serve]", "demo [--addr", "migrate up|down|status", "lock ls|show NAME|release NAME", "doctor [--json]", "race [--url", "version"} {
			if !strings.Contains(out, "\n  firsttap "+usage) {
				t.Errorf("%s does not name %q:\n%s", arg, usage, out)
			}
		}
	}
	for address, pairs := range map[string][]string{
		"http://localhost:8080": {}, "http://localhost:81": {"FIRSTTAP_ADDR", "0.0.0.0:81"}, "http://10.0.0.1:8": {"FIRSTTAP_ADDR", "10.0.0.1:8"},
		"http://[::1]:8080": {"FIRSTTAP_ADDR", "[::1]:8080"},
	} {
		out, err := commandOf(t, testkit.Settings(pairs...), "help")
		for _, step := range []string{"/console/ +sign in with the key in firsttap.admin-key\n", "/docs "} {
			if err != nil || !regexp.MustCompile(regexp.QuoteMeta(address)+step).MatchString(out) {
				t.Errorf("%v: help does not show %s%s: %v\n%s", pairs, address, step, err, out)
			}
		}
	}
	if out, _ := commandOf(t, testkit.Settings(), "help"); !regexp.MustCompile(` race --drivers 5 {3,}five`).MatchString(out) {
		t.Errorf("help does not show a race:\n%s", out)
	}
	secret := testkit.Settings("FIRSTTAP_ADMIN_KEY", systemtest.AdminKey)
	if out, err := commandOf(t, secret, "help"); err != nil || !strings.Contains(out, "sign in with FIRSTTAP_ADMIN_KEY\n") || strings.Contains(out, systemtest.AdminKey) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, arg := range []string{"", "bogus", "Serve", "--version"} {
		if out, err := commandOf(t, testkit.Settings(), arg); err == nil || !strings.Contains(err.Error(), "migrate up|down|status") || out != "" {
			t.Errorf("%q: %q, %v", arg, out, err)
		}
	}
	if _, err := commandOf(t, testkit.Settings("FIRSTTAP_ADDR", "127.0.0.1:0"), "serve", "now"); err == nil {
		t.Error("serve takes an argument")
	}
	testkit.MustHoldFiles(t, ".")
}

func TestBadSettingsStopEveryCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	broken := testkit.Settings("FIRSTTAP_LOG", "loud", "FIRSTTAP_ADDR", "nonsense", "FIRSTTAP_DATABASE_URL", "nonsense")
	for _, args := range [][]string{{}, {"serve"}, {"migrate", "up"}, {"race"}} {
		_, err := commandOf(t, broken, args...)
		for _, name := range []string{"FIRSTTAP_LOG", "FIRSTTAP_ADDR", "FIRSTTAP_DATABASE_URL"} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v: %s is not named: %v", args, name, err)
			}
		}
	}
	testkit.MustHoldFiles(t, ".")
}

func TestMigrateCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	env := testkit.Settings("FIRSTTAP_DATABASE_URL", "sqlite://my.db")
	migrate := func(args, want string) {
		t.Helper()
		out, err := commandOf(t, env, append([]string{"migrate"}, strings.Fields(args)...)...)
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("migrate %s: %q, %v; want %s", args, out, err, want)
		}
	}
	db := systemtest.OpenDatabase(t, "sqlite://my.db")
	const tables = "sqlite_master WHERE name IN ('dispatches', 'claims', 'events')"
	migrate("status", `(?m)^pending +\S+\.sql$`)
	migrate("down", `^no migration to revert\n$`)
	for range 2 {
		migrate("up", `^[1-9]\d* migrations applied\n$`)
		migrate("up", `^0 migrations applied\n$`)
		migrate("status", `(?m)^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ +\S+\.sql$`)
		if n := db.Count(tables); n != 3 {
			t.Errorf("%d tables after up", n)
		}
		for db.Count(tables) > 0 && !t.Failed() {
			// It says what goes, and without a terminal and --yes nothing does.
			out, err := commandOf(t, env, "migrate", "down")
			if err == nil || !strings.Contains(err.Error(), "--yes") || !strings.Contains(out, "drop or delete") {
				t.Errorf("migrate down: %q, %v", out, err)
			}
			migrate("down --yes", `^down reverts \d+_\w+\.sql; what these statements drop or delete is lost:\n`)
		}
	}
	for _, args := range [][]string{{"migrate"}, {"migrate", "sideways"}, {"migrate", "up", "down"}, {"migrate", "UP"}, {"migrate", ""}} {
		if _, err := commandOf(t, env, args...); err == nil || !strings.Contains(err.Error(), "migrate up|down|status") {
			t.Errorf("%v: %v", args, err)
		}
	}
	nowhere := testkit.Settings("FIRSTTAP_DATABASE_URL", "sqlite://"+filepath.Join(t.TempDir(), "not", "there", "my.db"))
	if _, err := commandOf(t, nowhere, "migrate", "up"); err == nil {
		t.Error("a database was made where there is no folder")
	}
}

// TestRaceAlone starts a service of its own, and leaves nothing behind.
func TestRaceAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	// Settings of servers that are not needed, and not there.
	env := testkit.Settings("FIRSTTAP_ADDR", testkit.FreeAddress(t), "FIRSTTAP_REDIS_URL", "redis://"+testkit.FreeAddress(t),
		"FIRSTTAP_DATABASE_URL", "mysql://u:p@"+testkit.FreeAddress(t)+"/d", "FIRSTTAP_DATABASE_READ_URL", "mysql://u:p@"+testkit.FreeAddress(t)+"/d",
		"FIRSTTAP_ADMIN_KEY", systemtest.AdminKey, "FIRSTTAP_JWT_SECRET", systemtest.JWTSecret)
	out, err := commandOf(t, env, "race", "--drivers", "10")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	winner := regexp.MustCompile(`(?m)^ *1 +(drv_\w{26}) .* 200 SUCCESS *$`).FindStringSubmatch(out)
	losers := regexp.MustCompile(`(?m)^ *\d+ +drv_\w{26} +\+\d+ +\d+ +409 ALREADY_TAKEN *$`).FindAllString(out, -1)
	if winner == nil || len(losers) != 9 || !strings.HasSuffix(out, "exactly one winner: "+winner[1]+"\n") {
		t.Errorf("%d losers in:\n%s", len(losers), out)
	}
	testkit.MustHoldFiles(t, ".")
}

func TestRaceWhereNobodyIs(t *testing.T) {
	t.Chdir(t.TempDir())
	here := testkit.FreeAddress(t)
	env := testkit.Settings("FIRSTTAP_ADDR", here, "FIRSTTAP_ADMIN_KEY", systemtest.AdminKey, "FIRSTTAP_JWT_SECRET", systemtest.JWTSecret)
	for _, args := range [][]string{
		{"--url", "http://" + here}, {"--url", "http://" + here + ",http://" + here}, {"--url", "nonsense"},
		{"--url", "http://" + here, "--drivers", "1"}, {"--drivers", "0"}, {"--drivers", "-1"}, {"--drivers", "1001"},
		{"--drivers", "ten"}, {"--nonsense"}, {"--drivers", "2", "10"},
	} {
		out, err := commandOf(t, env, append([]string{"race"}, args...)...)
		if err == nil || strings.Contains(out, "exactly one winner") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	// A key that is generated here is of no use there, so the error must ask for one.
	if _, err := commandOf(t, testkit.Settings(), "race", "--url", "http://"+here); err == nil || !strings.Contains(err.Error(), "FIRSTTAP_ADMIN_KEY") {
		t.Errorf("without a key: %v", err)
	}
	if out, err := commandOf(t, env, "race", "-h"); err != nil || !strings.Contains(out, "-drivers") {
		t.Errorf("-h: %q, %v", out, err)
	}
	testkit.MustHoldFiles(t, ".")
}

func TestRaceThatIsCalledOff(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := Run(ctx, []string{"race"}, testkit.Settings("FIRSTTAP_ADDR", testkit.FreeAddress(t)), config.Timeouts{}, &out)
	if err == nil || strings.Contains(out.String(), "exactly one winner") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestRaceRemovesWhatItMade, however the race ends: its drivers are erased and its dispatch is over. The first erasure is limited (429),
// and the race tries it again.
func TestRaceRemovesWhatItMade(t *testing.T) {
	t.Chdir(t.TempDir())
	service := systemtest.Start(t, "FIRSTTAP_DATABASE_URL=sqlite://race.db")
	behind, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]struct {
		path  string // ends ctx, before the request or after its answer
		after bool
		fails bool // instead of ending ctx, the request is refused
		wins  bool
	}{
		"a race":              {wins: true},
		"drivers being made":  {path: "/v1/admin/drivers/bulk"},
		"drivers made":        {path: "/v1/admin/drivers/bulk", after: true},
		"a dispatch made":     {path: "/v1/admin/dispatches", after: true},
		"the taps":            {path: "/accept"},
		"a refused dispatch":  {path: "/v1/admin/dispatches", fails: true},
		"a tap that succeeds": {path: "/accept", after: true},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		proxy := httputil.NewSingleHostReverseProxy(behind)
		var limited atomic.Bool
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			met := stop.path != "" && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, stop.path)
			switch {
			case strings.HasSuffix(r.URL.Path, "/erase") && !limited.Swap(true):
				w.WriteHeader(http.StatusTooManyRequests)
				return
			case met && stop.fails:
				w.WriteHeader(http.StatusForbidden)
				return
			case met && !stop.after:
				cancel()
			}
			proxy.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
			if met {
				cancel()
			}
		}))
		var out bytes.Buffer
		err := Run(ctx, []string{"race", "--url", front.URL, "--drivers", "5"}, testkit.Settings("FIRSTTAP_ADMIN_KEY", systemtest.AdminKey), config.Timeouts{}, &out)
		cancel()
		front.Close()
		if (err == nil) != stop.wins {
			t.Errorf("%s: %v\n%s", name, err, &out)
		}
		for _, list := range []string{"drivers?region=race", "dispatches?status=PENDING", "dispatches?status=ACCEPTED"} {
			var left struct{ Items []json.RawMessage }
			if err := loadtest.Call(t.Context(), http.DefaultClient, "GET", service.URL+"/v1/admin/"+list, systemtest.AdminKey, nil, &left); err != nil {
				t.Fatal(err)
			}
			testkit.Equal(t, name+": what stays of "+list, 0, len(left.Items))
		}
	}
}
