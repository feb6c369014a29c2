package main

import (
	"context"
	"errors"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const pagesTests = "web/browser/run.sh"

// Node's runner says "pass 50", the browser's "146 passed", and the script "left out: 68 tests".
var (
	passedPages = regexp.MustCompile(`(?m)^(?:ℹ pass (\d+)$| +(\d+) passed)`)
	failedPages = regexp.MustCompile(`(?m)^(?:ℹ fail (\d+)$| +(\d+) failed)`)
	leftPages   = regexp.MustCompile(`(?m)^left out: (\d+)()`)
)

// runPages tests the pages in Node and in a browser. The end of ctx, or a package's timeout, ends whatever the script has started.
func runPages(ctx context.Context) *result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := &result{suite: suite{pkg: path.Dir(pagesTests)}, output: map[string]*strings.Builder{"": {}}}
	cmd := exec.CommandContext(ctx, pagesTests)
	cmd.Stdout, cmd.Stderr = r.output[""], r.output[""]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the browsers end with the script
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	begin := time.Now()
	r.err = errors.Join(cmd.Run(), ctx.Err())
	r.took = time.Since(begin)
	if cmd.ProcessState != nil {
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	text := r.output[""].String()
	r.passed, r.failed = number(passedPages, text), number(failedPages, text)
	r.failures = pageFailures(text)
	if left := number(leftPages, text); left > 0 {
		r.skipped = map[string]int{"make test-all runs it": left}
	}
	return r
}

// number is the sum of the numbers that a pattern finds.
func number(pattern *regexp.Regexp, text string) (sum int) {
	for _, found := range pattern.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(found[1] + found[2])
		sum += n
	}
	return sum
}
