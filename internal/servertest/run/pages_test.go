package main

import (
	"fmt"
	"strings"
	"testing"
)

// The counts of the pages' two reporters are added up, and a line that only looks like one is no count.
func TestCountsOfThePages(t *testing.T) {
	const output = `ℹ tests 52
ℹ pass 50
ℹ fail 2
  ✓  1 tests/driver.spec.ts:4:1 › 3 passed the post (7.2s)

  1) tests/race.spec.ts:10:1 › a race of ten appears without reloading

  1 failed
    tests/race.spec.ts:10:1 › a race of ten appears without reloading
  64 passed (2.6m)
left out: 99 tests that are tagged @slow
`
	for name, c := range map[string]struct{ got, want int }{
		"passed":   {number(passedPages, output), 114},
		"failed":   {number(failedPages, output), 3},
		"left out": {number(leftPages, output), 99},
		"nothing":  {number(passedPages, "npm error"), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

// The summary of a long run says of each failed page test what it wanted.
func TestFailuresOfThePages(t *testing.T) {
	const output = `✖ adds (10.9ms)
test at pure/a.test.mjs:2:1
✖ adds (10.9ms)
  AssertionError [ERR_ASSERTION]: one is not two
  ✓    1 tests/clocks.spec.ts:4:1 › a clock (1.2s)

  1) tests/clocks.spec.ts:6:1 › every clock goes on @slow ─────────────────────

    Error: expect(locator).toHaveText(expected) failed

    Expected: "ago"
  2) tests/race.spec.ts:7:5 › two windows

    Error: gone
`
	got := fmt.Sprint(pageFailures(output))
	for _, want := range []string{
		"{pure/a.test.mjs:2:1 [✖ adds (10.9ms)   AssertionError [ERR_ASSERTION]: one is not two",
		`{tests/clocks.spec.ts:6:1 › every clock goes on @slow [    Error: expect(locator).toHaveText(expected) failed     Expected: "ago"]}`,
		"{tests/race.spec.ts:7:5 › two windows [    Error: gone]}",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nis not in\n%s", want, got)
		}
	}
}
