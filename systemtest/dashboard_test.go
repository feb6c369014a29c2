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

	"firsttap/servertest"
	"firsttap/testkit"
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

// busy returns an instance that has done a little of everything, and its /metrics.
func busy(t *testing.T) (i *Instance, served string) {
	t.Helper()
	ops, fcm := testkit.FreeAddress(t), StartFCM(t)
	i = Start(t, PushSettings(mariaDB(t), fcm, "busy", "FIRSTTAP_OPS_ADDR="+ops, "FIRSTTAP_REDIS_URL="+servertest.StartRedis(t).URL())...)
	drivers := MakeDriversWithPhones(t, i, "seoul", 2)
	id := MakeDispatch(t, i)
	Accept(i, id, drivers[0], 1)
	testkit.Eventually(t, "it has pushed, and a job has run", func() bool {
		served = send("GET", "http://"+ops+"/metrics", "", "").body
		return strings.Contains(served, "\nfirsttap_push_attempts_total{") && strings.Contains(served, "\nfirsttap_push_delay_seconds_bucket{") &&
			strings.Contains(served, "\nfirsttap_job_runs_total{")
	})
	return i, served
}

func isServed(served, metric string) bool {
	return strings.Contains(served, "\n"+metric+"{") || strings.Contains(served, "\n"+metric+" ")
}

// TestDashboard: an instance serves every metric that the dashboard and the alert rules name, and Prometheus can parse
// their expressions.
func TestDashboard(t *testing.T) {
	t.Parallel()
	_, served := busy(t)
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
	rules := struct {
		Groups []any `json:"groups"`
	}{Groups: []any{ruleGroup("dashboard", exprs)}}
	raw, err := json.Marshal(rules) // JSON is YAML too
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), servertest.Promtool(t), "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
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

// ruleGroup makes a recording rule of each expression, for promtool to parse.
func ruleGroup(name string, exprs []string) any {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	group := struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}{Name: name}
	for _, e := range exprs {
		group.Rules = append(group.Rules, rule{"checked", e})
	}
	return group
}

func TestMetricsOf(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		`histogram_quantile(0.99, sum by (le, op) (rate(a_bucket{x="y_z", w=~"v|u"}[5m]))) > 0.5`: "a_bucket",
		`sum(1 - up{a!="b"}) and max(c) / on (d) e_total offset 5m`:                               "up c e_total",
		`topk(10, x:y)`: "x:y",
	} {
		if got := strings.Join(metricsOf(expr), " "); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}
