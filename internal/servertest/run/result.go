package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// timeout ends a test program that hangs.
const timeout = 40 * time.Minute

const (
	atOnce   = 2  // packages run at a time, and later more: see options.later
	parallel = 8  // parallel tests of a package run at a time: most of them wait
	slowest  = 10 // tests are named at the end
)

// result is what a suite's run has shown.
type result struct {
	suite
	err      error
	took     time.Duration
	cpu      time.Duration // of the program and of the servers that it started and ended
	passed   int
	failed   int
	skipped  map[string]int // by reason
	tests    []timing
	failures []failure
	output   map[string]*strings.Builder // by test, of those that have not passed, or all that are long; "" is the program's own
}

type timing struct {
	test string
	took float64
}

// event is a line of test2json: see `go doc test2json`.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// timeout is 0, which is none, for long tests: they take as long as SOAK says, which may be a night.
func (s suite) timeout() time.Duration {
	if s.soak {
		return 0
	}
	return timeout
}

// runSuite runs the test program in its package's directory. If coverage is a folder, the program was compiled to count what runs.
func runSuite(ctx context.Context, s suite, binary, coverage string) *result {
	r := &result{suite: s, skipped: map[string]int{}, output: map[string]*strings.Builder{}}
	args := []string{
		"tool", "test2json", "-t", binary, "-test.v=test2json", fmt.Sprintf("-test.timeout=%v", s.timeout()),
		fmt.Sprintf("-test.parallel=%d", parallel), "-test.run=" + s.run, "-test.skip=" + s.skip,
	}
	if coverage != "" {
		args = append(args, "-test.gocoverdir="+coverage)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.dir
	cmd.Env = append(
		os.Environ(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"),
	) // what has waited for its goroutines sleeps no second before it ends
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.err = err
		return r
	}
	cmd.Stderr = os.Stderr
	begin := time.Now()
	if r.err = cmd.Start(); r.err != nil {
		return r
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.err = fmt.Errorf("%s: %w", lines.Bytes(), err)
			continue
		}
		r.add(e)
	}
	r.err = errors.Join(r.err, lines.Err(), cmd.Wait(), ctx.Err())
	r.took, r.cpu = time.Since(begin), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	return r
}

var sourceLine = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

func (r *result) add(e event) {
	if r.output[e.Test] == nil {
		r.output[e.Test] = &strings.Builder{}
	}
	text := r.output[e.Test]
	switch e.Action {
	case "output":
		text.WriteString(e.Output)
	case "skip":
		r.skipped[reason(text.String())]++
		delete(r.output, e.Test)
	case "pass", "fail":
		if e.Test == "" {
			return
		}
		if e.Action == "pass" && !r.soak { // the long tests print figures
			delete(r.output, e.Test)
		}
		if e.Action == "fail" {
			if f, says := newFailure(e.Test, text.String()); says {
				r.failures = append(r.failures, f)
			}
		}
		if strings.Contains(e.Test, "/") {
			return
		}
		if r.tests = append(r.tests, timing{e.Test, e.Elapsed}); e.Action == "pass" {
			r.passed++
		} else {
			r.failed++
		}
	}
}

// reason is what a skipped test says.
func reason(text string) string {
	for line := range strings.Lines(text) {
		if found := sourceLine.FindString(line); found != "" {
			return strings.TrimSpace(line[len(found):])
		}
	}
	return "no reason is given"
}

// print says how the run ended, and what the tests that failed have printed, or all that are long.
func (r *result) print() {
	seconds := fmt.Sprintf("%.3fs", r.took.Seconds())
	var text strings.Builder
	for _, test := range slices.Sorted(maps.Keys(r.output)) {
		text.WriteString(r.output[test].String())
	}
	if r.err == nil {
		if r.soak {
			fmt.Print(&text)
		}
		fmt.Printf("ok  \t%s\t%s\n", r.suite, seconds)
		return
	}
	fmt.Printf("%sFAIL\t%s\t%s\t%v\n", text.String(), r.suite, seconds, r.err)
}

// report prints the summary. It returns an error if a suite has failed.
func report(results []*result, took time.Duration) error {
	var passed, failed int
	var tests []timing
	skipped := map[string]int{}
	var bad []string
	fmt.Println("\nSeconds by package, and seconds of processor time:")
	for _, r := range slices.SortedFunc(slices.Values(results), func(a, b *result) int { return cmp.Compare(b.took, a.took) }) {
		fmt.Printf("%7.1f %7.1f  %4d tests  %s\n", r.took.Seconds(), r.cpu.Seconds(), r.passed+r.failed, r.suite)
		passed, failed = passed+r.passed, failed+r.failed
		for why, n := range r.skipped {
			skipped[why] += n
		}
		for _, t := range r.tests {
			tests = append(tests, timing{r.pkg + " " + t.test, t.took})
		}
		if r.err != nil {
			bad = append(bad, r.verdict())
		}
	}
	slices.SortFunc(tests, func(a, b timing) int { return cmp.Compare(b.took, a.took) })
	fmt.Println("\nSlowest tests:")
	for _, t := range tests[:min(slowest, len(tests))] {
		fmt.Printf("%7.2f  %s\n", t.took, t.test)
	}
	left := 0
	if len(skipped) > 0 {
		fmt.Println("\nLeft out:")
	}
	for _, why := range slices.SortedFunc(maps.Keys(skipped), func(a, b string) int { return cmp.Compare(skipped[b], skipped[a]) }) {
		fmt.Printf("%7d  %s\n", skipped[why], why)
		left += skipped[why]
	}
	if len(bad) > 0 {
		fmt.Println("\nFailed:")
	}
	for _, r := range results {
		if r.err != nil {
			r.printFailures(os.Stdout)
		}
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", passed, failed, left)
	fmt.Printf("The tests took %.0f s.\n", took.Seconds())
	if len(bad) > 0 {
		return fmt.Errorf("FAIL: %s", strings.Join(bad, "\nFAIL: "))
	}
	if passed == 0 {
		return errors.New("FAIL: no test ran")
	}
	return nil
}
