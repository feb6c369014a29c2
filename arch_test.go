package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// knows lists what each package may import of this module. A package that is not listed fails the test. Tests may import
// more: they are not checked.
var knows = map[string][]string{
	"": {"app"},
	"app": {
		"config", "cronjob", "demo", "dispatch", "firebase", "handler", "limit", "loadtest", "lock", "migrations", "notify", "notify/fcm",
		"notify/stream", "redisclient", "repository", "schedule", "service", "telemetry",
	},
	"config":             {"limit", "redisclient", "repository"},
	"telemetry":          {"dispatch", "lock", "redisclient", "repository", "service"},
	"demo":               {"config", "loadtest", "telemetry"},
	"dispatch":           {},
	"cronjob":            {},
	"idempotency":        {"dispatch"},
	"outbox":             {"dispatch"},
	"migrations":         {},
	"repository":         {"cronjob", "dispatch", "idempotency", "migrations", "outbox"},
	"service":            {"dispatch", "idempotency", "lock"},
	"handler":            {"asset", "console", "cronjob", "dispatch", "idempotency", "limit", "notify/stream", "openapi", "outbox", "service"},
	"asset":              {},
	"console":            {"asset"},
	"openapi":            {"asset"},
	"openapi/generate":   {},
	"firebase":           {"dispatch"},
	"limit":              {},
	"redisclient":        {},
	"lock":               {},
	"lock/locktest":      {"lock"},
	"lock/gocronlock":    {"lock"},
	"schedule":           {"cronjob", "dispatch", "lock"},
	"notify":             {"dispatch", "notify/wakeup", "outbox"},
	"notify/fcm":         {"dispatch", "notify", "outbox"},
	"notify/stream":      {"dispatch", "notify/wakeup"},
	"notify/wakeup":      {},
	"notify/fcmtest":     {},
	"notify/fcmsim":      {"notify/fcmtest"},
	"loadtest":           {},
	"loadtest/bench":     {},
	"loadtest/pushbench": {},
	"servertest":         {"testkit"},
	"servertest/run":     {"servertest"},
	"testkit":            {},
	"systemtest":         {"config", "notify/fcmtest", "repository/repositorytest", "servertest", "testkit"},

	"repository/repositorytest": {"migrations", "repository", "servertest", "testkit"},
}

// uses lists which packages may import a framework. loadtest/bench may import all of them.
var uses = map[string][]string{
	"gorm.io/":                   {"repository"},
	"github.com/glebarez/":       {"repository"},
	"github.com/go-sql-driver/":  {"repository", "lock", "migrations", "servertest", "systemtest"},
	"github.com/labstack/echo/":  {"handler"},
	"github.com/go-json-exper":   {"handler"},
	"github.com/redis/go-redis/": {"limit", "lock", "notify/stream", "redisclient", "servertest"},
	"firebase.google.com/":       {"notify/fcm"},
	"github.com/go-co-op/":       {"lock/gocronlock"},
	"github.com/robfig/":         {"schedule"},
	"github.com/prometheus/":     {"app", "firebase", "limit", "lock", "notify", "notify/stream", "schedule", "telemetry"},
	"go.opentelemetry.io/":       {"telemetry"},
	"github.com/pressly/goose/":  {"migrations"},
	"github.com/golang-jwt/":     {"firebase", "service"},
	"go.yaml.in/":                {"openapi/generate"},
	"testing":                    {"servertest", "lock/locktest", "repository/repositorytest", "systemtest", "testkit"},
}

// TestRoot checks that the root has only main.go and arch_test.go.
func TestRoot(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if want := []string{"arch_test.go", "main.go"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("the root holds %v, want %v", files, want)
	}
}

func TestArrows(t *testing.T) {
	for dir, files := range sources(t) {
		allowed, known := knows[dir]
		if !known {
			t.Errorf("package %q has no place in the house: say in knows what it may import", dir)
		}
		for name, file := range files {
			for _, spec := range file.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if ours, ok := strings.CutPrefix(path, "firsttap/"); ok && !slices.Contains(allowed, ours) {
					t.Errorf("%s imports %s", name, path)
				}
				if dir == "dispatch" && strings.Contains(path, ".") {
					t.Errorf("%s imports %s: the domain is a leaf", name, path)
				}
				for framework, by := range uses {
					if strings.HasPrefix(path, framework) && !slices.Contains(by, dir) && dir != "loadtest/bench" {
						t.Errorf("%s imports %s, which is for %v", name, path, by)
					}
				}
			}
		}
	}
}

// Only main's main reads the environment, and nobody calls gorm's Save: it falls back to an upsert and overwrites a
// winner.
func TestForbiddenCalls(t *testing.T) {
	for dir, files := range sources(t) {
		if slices.Contains([]string{"servertest", "servertest/run", "systemtest", "testkit", "loadtest/bench"}, dir) {
			continue
		}
		for name, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				base, _ := sel.X.(*ast.Ident)
				switch {
				case sel.Sel.Name == "Save":
					t.Errorf("%s calls Save", name)
				case base != nil && base.Name == "os" && name != "main.go" &&
					slices.Contains([]string{"Getenv", "LookupEnv", "Environ"}, sel.Sel.Name):
					t.Errorf("%s reads the environment", name)
				}
				return true
			})
		}
	}
}

// TestTestsDoNotDependOnSpeed fails if a test sleeps, or compares the time that something took with an upper bound: on a busy machine
// any bound is exceeded some time. Both are allowed in files with the tag soak, in benchmarks, and in a bubble of testing/synctest, whose
// clock stands still while a goroutine works. A function counts as in a bubble if it begins one, calls a helper that does (bubble, or a name
// that ends with nBubble), or has a comment that contains the word bubble.
func TestTestsDoNotDependOnSpeed(t *testing.T) {
	walk(t, func(name string, file *ast.File) {
		if slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool { return c.Pos() < file.Package && c.List[0].Text == "//go:build soak" }) {
			return
		}
		if !strings.HasSuffix(name, "_test.go") && !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` }) {
			return
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || strings.HasPrefix(f.Name.Name, "Benchmark") || inBubble(f) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if nameOf(n.Fun) == "time.Sleep" {
						t.Errorf("%s: %s sleeps", name, f.Name.Name)
					}
				case *ast.BinaryExpr:
					measured := n.X
					if n.Op == token.LSS || n.Op == token.LEQ {
						measured = n.Y
					} else if n.Op != token.GTR && n.Op != token.GEQ {
						return true
					}
					if isMeasured(f, measured) {
						t.Errorf("%s: %s bounds a measured time from above", name, f.Name.Name)
					}
				}
				return true
			})
		}
	})
}

func inBubble(f *ast.FuncDecl) bool {
	if strings.Contains(f.Doc.Text(), "bubble") || mentions(f, "synctest.Test", "rapid.SyncTest") {
		return true
	}
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && (name.Name == "bubble" || strings.HasSuffix(name.Name, "nBubble"))
		return !found
	})
	return found
}

// isMeasured reports whether x is the time that something took: time.Since, time.Now().Sub, or a variable of f that is set to one.
func isMeasured(f *ast.FuncDecl, x ast.Expr) bool {
	if isElapsed(x) {
		return true
	}
	variable, ok := x.(*ast.Ident)
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		set, isSet := n.(*ast.AssignStmt)
		if ok && isSet && len(set.Lhs) == len(set.Rhs) {
			for i, l := range set.Lhs {
				found = found || nameOf(l) == variable.Name && isElapsed(set.Rhs[i])
			}
		}
		return !found
	})
	return found
}

func isElapsed(x ast.Expr) bool {
	return mentions(x, "time.Since") || mentions(x, "time.Now") && mentions(x, "Sub")
}

// mentions reports whether a name, such as "time.Now", is in the tree below n. A name without a dot is any selector's.
func mentions(n ast.Node, names ...string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			found = found || slices.Contains(names, nameOf(sel)) || slices.Contains(names, sel.Sel.Name)
		}
		return !found
	})
	return found
}

// nameOf is "x" or "x.y", or empty for other expressions.
func nameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		if base, ok := x.X.(*ast.Ident); ok {
			return base.Name + "." + x.Sel.Name
		}
	}
	return ""
}

var (
	mdLink    = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	mdPath    = regexp.MustCompile("`([a-z]+(?:/[\\w.-]+)+)`")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestPages checks that docs/architecture.md names every package, and that the links, sections and files that README.md,
// CONTRIBUTING.md and docs/ name exist.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	text, sections := map[string]string{}, map[string][]string{}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text[page] = string(raw)
		for _, h := range mdHeading.FindAllStringSubmatch(text[page], -1) {
			slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
			sections[page] = append(sections[page], "#"+slug)
		}
	}
	for dir := range knows {
		if dir != "" && !strings.Contains(text["docs/architecture.md"], "`"+dir+"`") {
			t.Errorf("docs/architecture.md does not name package %s", dir)
		}
	}
	for page := range text {
		for _, link := range mdLink.FindAllStringSubmatch(text[page], -1) {
			target := page
			if link[1] != "" && !strings.Contains(link[1], "://") {
				target = filepath.Join(filepath.Dir(page), link[1])
			}
			if _, err := os.Stat(target); err != nil || link[2] != "" && !slices.Contains(sections[target], link[2]) {
				t.Errorf("%s links to %s%s, which does not exist", page, link[1], link[2])
			}
		}
		for _, path := range mdPath.FindAllStringSubmatch(text[page], -1) {
			top, _, _ := strings.Cut(path[1], "/")
			if _, err := os.Stat(top); err != nil {
				continue // not a path of the project
			}
			if _, err := os.Stat(path[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", page, path[1])
			}
		}
	}
}

// TestPromises checks that the tests that CONTRIBUTING.md names exist.
func TestPromises(t *testing.T) {
	exists := map[string]bool{}
	walk(t, func(_ string, file *ast.File) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				exists[f.Name.Name] = true
			}
		}
	})
	raw, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(raw), -1)
	for _, name := range names {
		if !exists[name] {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", name)
		}
	}
	if len(names) < 100 {
		t.Errorf("CONTRIBUTING.md names %d tests only", len(names))
	}
}

// sources returns the product's files, parsed, by folder and name.
func sources(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	found := map[string]map[string]*ast.File{}
	walk(t, func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), ".")
		if found[dir] == nil {
			found[dir] = map[string]*ast.File{}
		}
		found[dir][path] = file
	})
	if len(found) < 8 {
		t.Fatalf("only %d folders have sources", len(found))
	}
	return found
}

// walk calls visit with each Go file of the module.
func walk(t *testing.T, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != "." {
			return filepath.SkipDir // a module of its own
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err == nil {
			visit(path, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
