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
		files, err := filepath.Glob(filepath.Join("..", "..", "..", pkg, "*_test.go"))
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

// What `make` compiles before a run, the run compiles with the same flags, or it would compile all packages again.
func TestFlagsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nshared := " + goFlags + "\n"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile has no line %q", want)
	}
}
