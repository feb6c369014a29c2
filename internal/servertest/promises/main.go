// Command promises prints docs/promises.md: what each test promises, in the words of its own comment, or of its name if it has none.
// It reads the tests below the working directory: `make promises` writes the page.
package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const head = "# What each test promises\n\n" +
	"`make promises` makes this page of the tests' own comments and names, and a test fails when it is not current.\n" +
	"Tests of files that end with `_soak_test.go` are run by `make soak`, those of pages that are marked as slow by `make test-all`.\n"

func main() {
	page, err := promises(".")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(page)
}

// promises returns the page for the tests below root.
func promises(root string) (string, error) {
	lists := map[string][]string{} // by folder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if err != nil || d.IsDir() {
			if path != root && (name == "node_modules" || name == "bin" || name[0] == '.') {
				return filepath.SkipDir
			}
			return err
		}
		find := goTests
		switch {
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".spec.ts"), strings.HasSuffix(name, ".test.mjs"):
			find = pageTests
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		lists[filepath.ToSlash(folder)] = append(lists[filepath.ToSlash(folder)], find(name, string(text))...)
		return err
	})
	var b strings.Builder
	b.WriteString(head)
	for _, folder := range slices.Sorted(maps.Keys(lists)) {
		if len(lists[folder]) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", cmp.Or(strings.TrimPrefix(folder, "."), "the whole"), strings.Join(lists[folder], "\n"))
		}
	}
	return b.String(), err
}

var goTest = regexp.MustCompile(`(?m)((?:^// .*\n)*)^func ((?:Test|Fuzz)[A-Z]\w*)\(\w+ \*testing\.`)

// goTests returns a line for each test of a file.
func goTests(_, text string) (lines []string) {
	for _, m := range goTest.FindAllStringSubmatch(text, -1) {
		promise := strings.Join(strings.Fields(strings.ReplaceAll("\n"+m[1], "\n// ", " ")), " ")
		promise = strings.TrimLeft(strings.TrimPrefix(promise, m[2]), ":, ")
		if promise == "" {
			promise = words(m[2])
		}
		lines = append(lines, fmt.Sprintf("- %s `%s`", sentence(promise), m[2]))
	}
	return lines
}

var pageTest = regexp.MustCompile("(?m)^ *test\\((?:\"([^\"]+)\"|`([^`]+)`)")

// pageTests returns a line for the tests of a file of pages.
func pageTests(name, text string) []string {
	var all []string
	for _, m := range pageTest.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1]+m[2])
	}
	if len(all) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("- %s `%s`", sentence(strings.Join(all, "; ")), name)}
}

// words returns the words of a test's name.
func words(name string) string {
	name = regexp.MustCompile("^(Test|Fuzz)").ReplaceAllString(name, "")
	return strings.ToLower(regexp.MustCompile("([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])").ReplaceAllString(name, "$1$3 $2$4"))
}

// sentence returns text with a capital letter and a full stop.
func sentence(text string) string {
	r := []rune(text)
	r[0] = unicode.ToUpper(r[0])
	if text = string(r); !strings.ContainsRune(".!?", r[len(r)-1]) {
		text += "."
	}
	return text
}
