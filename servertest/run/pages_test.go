package main

import "testing"

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
