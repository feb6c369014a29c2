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

// TestRoot checks that the root has only main.go and the test of the rules,
// with its lists, that all packages keep.
func TestRoot(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if want := []string{"arch_lists_test.go", "arch_test.go", "main.go"}; err != nil || !slices.Equal(files, want) {
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

var (
	writes      = regexp.MustCompile(`(?:INSERT INTO|UPDATE|DELETE FROM|\{delete \w\} FROM) ([a-z_]+)\b`)
	tableOfRow  = regexp.MustCompile(`func \(\w+\) TableName\(\) string \{ return "([a-z_]+)" \}|Entries: "([a-z_]+)"`)
	roomMethods = regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)\) [A-Z]\w*\(`)
)

// TestRooms checks that each room of the repository writes its own tables only, has a map of more than five files, no more than 2,000
// lines, and types of at most fifteen methods.
func TestRooms(t *testing.T) {
	sql := map[string]string{} // the text of each room, without comments
	for dir, files := range sources(t) {
		room, ok := strings.CutPrefix(dir, "repository/")
		if !ok || room == "repositorytest" {
			continue
		}
		lines, methods, doc := 0, map[string]int{}, false
		for name, file := range files {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(raw), "\n")
			for _, m := range roomMethods.FindAllStringSubmatch(string(raw), -1) {
				methods[m[1]]++
			}
			doc = doc || file.Doc != nil && (filepath.Base(name) == "doc.go" || len(files) <= 5)
			for _, line := range strings.Split(string(raw), "\n") {
				if !strings.HasPrefix(strings.TrimSpace(line), "//") {
					sql[room] += line + "\n"
				}
			}
		}
		if lines > 2000 || !doc {
			t.Errorf("room %s has %d lines, and a doc.go: %t", room, lines, doc)
		}
		for name, n := range methods {
			if n > 15 {
				t.Errorf("room %s: %s has %d methods", room, name, n)
			}
		}
	}
	found := map[string]bool{}
	for room, text := range sql {
		text = strings.ReplaceAll(text, "KEY UPDATE", "") // of an INSERT: a column follows
		for _, m := range append(writes.FindAllStringSubmatch(text, -1), tableOfRow.FindAllStringSubmatch(text, -1)...) {
			table := strings.Join(m[1:], "")
			by := owners[table]
			if found[table] = true; slices.Contains(by, room) {
				continue
			}
			if exceptions[room+" "+table] == "" {
				t.Errorf("room %s writes %s, which is for %v", room, table, by)
			}
		}
	}
	for table := range owners {
		if !found[table] {
			t.Errorf("no room writes %s", table)
		}
	}
}

// Only main's main reads the environment, and nobody calls gorm's Save: it falls back to an upsert and overwrites a
// winner.
func TestForbiddenCalls(t *testing.T) {
	for dir, files := range sources(t) {
		if slices.Contains([]string{"internal/servertest", "internal/servertest/with", "systemtest", "internal/testkit", "loadtest/bench"}, dir) {
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

// Each test in a file with the build tag soak has a name that begins with TestSoak, because `make soak` runs those.
func TestSoakTestsAreRun(t *testing.T) {
	walk(t, func(path string, file *ast.File) {
		isSoak := slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool { return c.List[0].Text == "//go:build soak" })
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !isSoak || f.Recv != nil || f.Name.Name == "TestMain" {
				continue
			}
			if name := f.Name.Name; strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "TestSoak") {
				t.Errorf("%s: make soak does not run %s: its name has to begin with TestSoak", path, name)
			}
		}
	})
}

var (
	mdLink    = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	mdPath    = regexp.MustCompile("`([a-z]+(?:/[\\w.-]+)+)`")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	mdTest    = regexp.MustCompile("`(Test[A-Z]\\w*)(?:/(\\w+))?`")
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	lockTest  = regexp.MustCompile(`\{name: "(\w+)",`)
)

// TestPages checks that docs/architecture.md names every package, and that the links, sections, files and tests that README.md,
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
	tests := testNames(t)
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
			if _, err := os.Stat(top); err != nil || top == "bin" {
				continue // not a path of the project, or made by a command
			}
			if _, err := os.Stat(path[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", page, path[1])
			}
		}
		for _, test := range mdTest.FindAllStringSubmatch(text[page], -1) {
			if !tests[test[1]] || test[2] != "" && !tests["/"+test[2]] {
				t.Errorf("%s names %s, which is no test", page, test[0])
			}
		}
	}
}

// testNames returns the names of all tests, also of the modules within this one, and with a slash before them those of lock/locktest, which
// each strategy of locks runs.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	walkFiles(t, true, func(path string) {
		pattern, before := testFunc, ""
		switch {
		case filepath.Dir(path) == filepath.Join("lock", "locktest"):
			pattern, before = lockTest, "/"
		case !strings.HasSuffix(path, "_test.go"):
			return
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pattern.FindAllStringSubmatch(string(raw), -1) {
			found[before+name[1]] = true
		}
	})
	return found
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
	walkFiles(t, false, func(path string) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		visit(path, file)
	})
}

// walkFiles calls visit with the path of each Go file of the module, and if nested also of the modules within it.
func walkFiles(t *testing.T, nested bool, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != "." && !nested {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
