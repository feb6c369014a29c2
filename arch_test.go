package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// knows lists what of ours each package may import. What is not listed may import nothing of ours, and everybody but
// main may leave out what is listed.
var knows = map[string][]string{
	"":                {"dispatch", "firebase", "handler", "limit", "loadtest", "lock", "migrations", "notify", "openapi", "repository", "schedule", "service"},
	"asset":           {},
	"openapi":         {"asset"},
	"console":         {"asset"},
	"dispatch":        {},
	"firebase":        {"dispatch"},
	"limit":           {},
	"lock":            {},
	"lock/locktest":   {"lock"},
	"lock/gocronlock": {"lock"},
	"migrations":      {},
	"servertest":      {},
	"loadtest":        {},
	"loadtest/bench":  {},
	"repository":      {"dispatch", "migrations"},
	"schedule":        {"dispatch", "lock", "lock/gocronlock"},
	"service":         {"dispatch", "lock"},
	"handler":         {"asset", "console", "dispatch", "limit", "notify", "openapi", "service"},
	"notify":          {"dispatch"},
	"notify/fcmtest":  {},
	"notify/fcmsim":   {"notify/fcmtest"},
}

// uses lists who may import a framework, besides the comparison, which uses them all.
var uses = map[string][]string{
	"gorm.io/":                   {"repository"},
	"github.com/glebarez/":       {"repository"},
	"github.com/go-sql-driver/":  {"repository", "lock", "migrations", "servertest"},
	"github.com/labstack/echo/":  {"handler"},
	"github.com/go-json-exper":   {"handler"},
	"github.com/redis/go-redis/": {"limit", "lock", "notify"},
	"firebase.google.com/":       {"notify"},
	"github.com/go-co-op/":       {"lock/gocronlock", "schedule"},
	"github.com/jonboulle/":      {"schedule"},
	"github.com/prometheus/":     {"", "firebase", "limit", "lock", "notify", "schedule"},
	"go.opentelemetry.io/":       {""},
	"github.com/pressly/goose/":  {"migrations"},
	"github.com/golang-jwt/":     {"firebase", "service"},
	"go.yaml.in/":                {"openapi"},
	"testing":                    {"servertest", "lock/locktest"},
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
		if dir == "servertest" || dir == "loadtest/bench" {
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

// sources returns the product's files, parsed, by folder and name.
func sources(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	found := map[string]map[string]*ast.File{}
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
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), ".")
		if found[dir] == nil {
			found[dir] = map[string]*ast.File{}
		}
		found[dir][path] = file
		return nil
	})
	if err != nil || len(found) < 8 {
		t.Fatalf("%d folders: %v", len(found), err)
	}
	return found
}
