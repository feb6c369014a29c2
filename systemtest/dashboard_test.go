package systemtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// dashboard is the part of deploy/grafana.json that the tests read.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	raw, err := os.ReadFile("../deploy/grafana.json")
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	// notMetrics are strings, labels, ranges, offsets and groupings; names with a parenthesis behind them are functions.
	notMetrics = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(by|on|without|ignoring) *\([^)]*\)|\boffset +\w+`)
	names      = regexp.MustCompile(`\b[a-zA-Z_:][a-zA-Z0-9_:]*\b *\(?`)
	keywords   = []string{"and", "or", "unless", "bool"}
)

// metricsOf returns the metrics that an expression names.
func metricsOf(expr string) (found []string) {
	for _, name := range names.FindAllString(notMetrics.ReplaceAllString(expr, " "), -1) {
		if name = strings.TrimSpace(name); !strings.HasSuffix(name, "(") && !slices.Contains(keywords, name) {
			found = append(found, name)
		}
	}
	return found
}

// metricsOfABusyInstance is /metrics of an instance that has done a little of everything, and has a replica.
func metricsOfABusyInstance(t *testing.T) (served string) {
	t.Helper()
	ops := testkit.FreeAddress(t)
	i := startPushing(t, mariaDB(t)).start("busy", "FIRSTTAP_OPS_ADDR="+ops, ownRedis(t),
		"FIRSTTAP_DATABASE_READ_URL=mysql://nobody@"+testkit.FreeAddress(t)+"/replica") // which is away, and does not stop the start
	drivers := MakeDriversWithPhones(t, i, "seoul", 2)
	id := MakeDispatch(t, i)
	Accept(i, id, drivers[0], 1)
	testkit.Eventually(t, "it has pushed, and a job has run", func() bool {
		served = send("GET", "http://"+ops+"/metrics", "", "").body
		return strings.Contains(served, "\nfirsttap_push_attempts_total{") && strings.Contains(served, "\nfirsttap_push_delay_seconds_bucket{") &&
			strings.Contains(served, "\nfirsttap_job_runs_total{")
	})
	return served
}

func isServed(served, metric string) bool {
	return strings.Contains(served, "\n"+metric+"{") || strings.Contains(served, "\n"+metric+" ")
}

// TestDashboard: an instance serves every metric that the dashboard and the alert rules name, and Prometheus can parse
// their expressions.
func TestDashboard(t *testing.T) {
	t.Parallel()
	served := metricsOfABusyInstance(t)
	var exprs []string
	d := readDashboard(t)
	seen := map[int]bool{}
	for _, p := range d.Panels {
		if seen[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s is not a panel like the others", p.Title)
		}
		seen[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(target.Expr))
			if len(metricsOf(target.Expr)) == 0 {
				t.Errorf("%s asks for nothing: %s", p.Title, target.Expr)
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" && !strings.Contains(v.Definition, "(firsttap_database_up, instance)") {
			t.Errorf("the variable %s goes by %s", v.Name, v.Definition)
		}
	}
	if len(exprs) < 30 {
		t.Errorf("%d expressions", len(exprs))
	}
	rules := []map[string]string{} // a recording rule of each expression, for promtool to parse
	for _, e := range exprs {
		rules = append(rules, map[string]string{"record": "checked", "expr": e})
	}
	raw, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}}) // JSON is YAML too
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", file)
	alerts, err := os.ReadFile("../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	exprs = append(exprs, regexp.MustCompile(`\bfirsttap_[a-z_]+`).FindAllString(string(alerts), -1)...)
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(served, -1) {
		if !regexp.MustCompile(`^(firsttap|go|process)_`).MatchString(family[1]) {
			t.Errorf("the metric %s has another prefix", family[1])
		}
	}
	for _, e := range exprs {
		for _, name := range metricsOf(e) {
			if !isServed(served, name) {
				t.Errorf("there is no metric %s, for %s", name, e)
			}
		}
	}
}

// TestAlerts: promtool's tests of the alert rules pass. That their metrics exist, TestDashboard checks.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "../deploy/alerts.yml")
	promtool(t, "test", "rules", "../deploy/alerts_test.yml")
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), servertest.Promtool(t), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}
