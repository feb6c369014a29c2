package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each name for the race detector is one of a test: a test with a new name would run without it, unnoticed.
func TestRacedTestsExist(t *testing.T) {
	all := maps.Clone(slowlyRaced)
	maps.Copy(all, slowlyRacedInAll)
	for pkg, pattern := range all {
		files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pkg, len(files), err)
		}
		var source strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		names := strings.TrimSuffix(strings.TrimPrefix(pattern, "^Test("), ")$")
		for name := range strings.SplitSeq(names, "|") {
			declared := regexp.MustCompile(`(?m)^func Test` + strings.ReplaceAll(name, ".*", `\w*`) + `\(`)
			if !declared.MatchString(source.String()) {
				t.Errorf("%s has no test Test%s", pkg, name)
			}
		}
	}
}
