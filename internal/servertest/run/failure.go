package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// failure is a test that has failed, with the lines that say why. The summary repeats it, as a long run's output hides it.
type failure struct {
	test string
	why  []string
}

const (
	reasonLines = 3   // of a failed Go test
	pageLines   = 7   // of a failed page test, which says what it wanted in lines of their own
	reasonWidth = 400 // bytes of a line
	lastLines   = 5   // of a program that failed outside its tests
	namedTests  = 10  // of a suite are named in a run's last lines
)

// newFailure reads what a Go test has printed. Its last lines are the ones that ended it.
func newFailure(test, text string) (failure, bool) {
	f := failure{test: test}
	for line := range strings.Lines(text) {
		if sourceLine.MatchString(line) {
			f.why = append(f.why, line)
		}
	}
	f.why = f.why[max(0, len(f.why)-reasonLines):]
	return f, len(f.why) > 0 || !strings.Contains(test, "/") // a test that failed for its parts has no line
}

// The browser's reporter begins a failed test's error with "  1) tests/a.spec.ts:3:1 › name ────", and Node's with
// "test at pure/a.test.mjs:3:1" in a line before it.
var failedPage = regexp.MustCompile(`^(?:  \d+\) (.+?)(?: ─+)?|test at (.+))$`)

// pageFailures reads what the two reporters of the pages have printed.
func pageFailures(text string) (all []failure) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if found := failedPage.FindStringSubmatch(line); found != nil {
			all = append(all, failure{test: found[1] + found[2]})
			continue
		}
		if len(all) == 0 || strings.TrimSpace(line) == "" {
			continue
		}
		if last := &all[len(all)-1]; len(last.why) < pageLines {
			last.why = append(last.why, line)
		}
	}
	return all
}

// verdict names the suite and its failed tests in lines of their own, the last of a run.
func (r *result) verdict() string {
	var tests []string
	for _, f := range r.failures {
		name, _, _ := strings.Cut(f.test, " ") // a page test's place, without its title
		tests = append(tests, name)
	}
	if len(tests) > namedTests {
		tests = append(tests[:namedTests], fmt.Sprintf("and %d more", len(tests)-namedTests))
	}
	return strings.Join(slices.Insert(tests, 0, r.String()), "\n  ")
}

// printFailures lists a failed suite's tests, or its last lines if none of its tests has failed: a program may end by a panic.
func (r *result) printFailures(w io.Writer) {
	failures := r.failures
	if len(failures) == 0 {
		var lines []string
		if own := r.output[""]; own != nil {
			lines = slices.Collect(strings.Lines(own.String()))
		}
		failures = []failure{{r.err.Error(), lines[max(0, len(lines)-lastLines):]}}
	}
	for _, f := range failures {
		fmt.Fprintf(w, "  %s: %s\n", r.suite, f.test)
		for _, line := range f.why {
			line = strings.TrimSpace(line)
			fmt.Fprintf(w, "      %s\n", line[:min(len(line), reasonWidth)])
		}
	}
}
