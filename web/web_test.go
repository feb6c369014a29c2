package web

import (
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var folders = []string{"assets", "console", "driver"}

// pages returns the files of the pages by address: /console/main.js.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range folders {
		files, err := Files(folder)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range files {
			found["/"+folder+"/"+name] = string(f.Body)
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d files", len(found))
	}
	return found
}

// TestAllFilesAreServed: static has no other folders.
func TestAllFilesAreServed(t *testing.T) {
	entries, err := fs.ReadDir(static, "static")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || !slices.Contains(folders, e.Name()) {
			t.Errorf("static/%s is not served", e.Name())
		}
	}
}

// references match the addresses in files with that ending: modules, styles, icons.
var references = map[string][]*regexp.Regexp{
	".js": {
		regexp.MustCompile(`(?m)^\s*(?:import|export)\b[^"';]*\bfrom\s*["']([^"']+)["']`),
		regexp.MustCompile(`(?m)^\s*import\s*["']([^"']+)["']`),
		regexp.MustCompile(`\bimport\(\s*["']([^"']+)["']`),
		regexp.MustCompile(`["'](/(?:assets|console|driver)/[^"'#?]+\.[a-z]+)["']`),
		regexp.MustCompile(`\b(?:href|src)="((?:\.{0,2}/)?[a-z][^"#$:]*\.(?:js|css|svg|png|html|webmanifest))"`),
		regexp.MustCompile(`new URL\(["'](\.[^"']*)["'], *import\.meta\.url`),
	},
	".html":        {regexp.MustCompile(`\b(?:href|src)="([^"#]+)"`)},
	".css":         {regexp.MustCompile(`url\(\s*["']?([^"')]+)`), regexp.MustCompile(`@import\s+["']([^"']+)["']`)},
	".webmanifest": {},
}

var comment = regexp.MustCompile(`(?s)/\*\*.*?\*/`)

// TestReferences: each address in a file is one of the files, on this host.
func TestReferences(t *testing.T) {
	files, looked := pages(t), 0
	check := func(from, to string) {
		looked++
		if to, _, _ = strings.Cut(to, "?"); strings.HasPrefix(to, "data:") {
			return
		}
		if strings.Contains(to, "://") || strings.HasPrefix(to, "//") {
			t.Errorf("%s names %s, which is on another host", from, to)
			return
		}
		address := to
		if !strings.HasPrefix(to, "/") {
			address = path.Join(path.Dir(from), to)
			if strings.HasSuffix(to, "/") || to == "." {
				address += "/"
			}
		}
		if strings.HasSuffix(address, "/") {
			address += "index.html"
		}
		if _, ok := files[address]; !ok {
			t.Errorf("%s names %s, which does not exist", from, to)
		}
	}
	for from, body := range files {
		if path.Ext(from) == ".js" {
			body = comment.ReplaceAllString(body, "") // a type in a comment may be a package's
		}
		for _, find := range references[path.Ext(from)] {
			for _, found := range find.FindAllStringSubmatch(body, -1) {
				check(from, found[1])
			}
		}
		if path.Ext(from) != ".webmanifest" {
			continue
		}
		var manifest struct {
			StartURL string `json:"start_url"`
			Scope    string
			Icons    []struct{ Src string }
		}
		if err := json.Unmarshal([]byte(body), &manifest); err != nil {
			t.Errorf("%s: %v", from, err)
		}
		check(from, manifest.StartURL)
		for _, icon := range manifest.Icons {
			check(from, icon.Src)
		}
	}
	if looked < 40 {
		t.Errorf("only %d references were looked at", looked)
	}
}

// TestNoCircle: no module imports one that imports it, also where the browser loads that later.
func TestNoCircle(t *testing.T) {
	imports, looked := map[string][]string{}, 0
	for from, body := range pages(t) {
		if path.Ext(from) != ".js" {
			continue
		}
		for _, find := range references[".js"][:3] {
			for _, found := range find.FindAllStringSubmatch(comment.ReplaceAllString(body, ""), -1) {
				imports[from] = append(imports[from], path.Join(path.Dir(from), found[1]))
				looked++
			}
		}
	}
	if looked < 150 {
		t.Errorf("only %d imports were looked at", looked)
	}
	done := map[string]bool{}
	var follow func(module string, way []string)
	follow = func(module string, way []string) {
		if at := slices.Index(way, module); at >= 0 {
			t.Errorf("a circle: %s", strings.Join(append(way[at:], module), " imports "))
			return
		}
		if done[module] {
			return
		}
		for _, next := range imports[module] {
			follow(next, append(slices.Clip(way), module))
		}
		done[module] = true
	}
	for module := range imports {
		follow(module, nil)
	}
}

// TestReferencesAreFound in each notation.
func TestReferencesAreFound(t *testing.T) {
	for source, want := range map[string]string{
		`import { a } from "./x.js";`: "./x.js", "import {\n  a,\n  b,\n} from \"../assets/x.js\";": "../assets/x.js", `import "x.css";`: "x.css",
		`export * from "./x.js"`: "./x.js", `const u = await import("../assets/uplot.js");`: "../assets/uplot.js",
		`navigator.serviceWorker.register("/driver/sw.js")`: "/driver/sw.js", "html`<link rel=\"stylesheet\" href=\"../assets/uplot.css\">`": "../assets/uplot.css",
		`new URL("./x.png", import.meta.url)`: "./x.png",
	} {
		var found []string
		for _, find := range references[".js"] {
			for _, f := range find.FindAllStringSubmatch(source, -1) {
				found = append(found, f[1])
			}
		}
		if !slices.Equal(slices.Compact(found), []string{want}) {
			t.Errorf("%s: %v", source, found)
		}
	}
}

// TestNoInlineScripts: the policy has no unsafe-inline, so browsers would ignore inline scripts and styles.
func TestNoInlineScripts(t *testing.T) {
	if p := Policy(); strings.Contains(p, "unsafe") || strings.Contains(p, "*") || strings.Contains(p, "http") {
		t.Errorf("%s", p)
	}
	inline := regexp.MustCompile(`(?i)<script(?:\s+type="[^"]*")?>|<style|\sstyle="|\son[a-z]+="|javascript:`)
	for address, body := range pages(t) {
		if path.Ext(address) == ".html" && inline.MatchString(body) {
			t.Errorf("%s has %s", address, inline.FindString(body))
		}
	}
}

func TestPolicyWithHosts(t *testing.T) {
	if p := Policy("https://a.example", "http://127.0.0.1:9099"); !strings.Contains(p, "; connect-src 'self' https://a.example http://127.0.0.1:9099; ") {
		t.Errorf("%s", p)
	}
}
