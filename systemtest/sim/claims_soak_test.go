//go:build soak

package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

// TestSoakClaims is TestClaims for a longer time, with twenty seeds at least.
func TestSoakClaims(t *testing.T) {
	end := time.Now().Add(testkit.SoakTime(t))
	all := explore(t, func(s sum) bool { return s.histories >= 20 && time.Now().After(end) })
	for _, f := range allFaults {
		if all.struck[f] == 0 {
			t.Errorf("a fault has never struck: %s", f)
		}
	}
}

// plantedSeeds is how many histories may pass until a bug is found: about a minute of 2 cores.
const plantedSeeds = 24

// TestSoakPlantedBugs: the checker finds each of the planted bugs.
func TestSoakPlantedBugs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	table := make([]string, len(bugs))
	t.Run("bugs", func(t *testing.T) {
		for k, b := range bugs {
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				table[k] = b.find(t, root)
			})
		}
	})
	t.Log("bug | broken promise | seed | accepts of its history | seconds\n" + strings.Join(table, "\n"))
}

// violated is what a test program prints of the first promise that is broken.
var violated = regexp.MustCompile(`seed (\d+): after (\d+) accepts \d+ promises are broken, the first: ([^:]+):`)

// find builds the simulation with the bug, runs histories until one breaks a promise, and returns the bug's line of the table.
func (b bug) find(t *testing.T, root string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "-overlay", b.overlay(t, root), "./systemtest/sim")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", b.name, err, said)
	}
	began := time.Now()
	live := exec.CommandContext(t.Context(), program, "-test.run", "^TestClaims$", "-seeds", fmt.Sprint(plantedSeeds), "-shrink", "0")
	live.Dir = filepath.Join(root, "systemtest/sim")
	said, err := live.CombinedOutput()
	found := violated.FindSubmatch(said)
	if err == nil || found == nil {
		t.Errorf("%s: no promise is broken after %v\n%s", b.name, err, said[max(len(said)-2000, 0):])
		return b.name + " | NOT FOUND"
	}
	return fmt.Sprintf("%s | %s | %s | %s | %.0f", b.name, found[3], found[1], found[2], time.Since(began).Seconds())
}

// overlay returns the path of a file that makes the go command read the bug's file instead of the product's.
func (b bug) overlay(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, b.file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	planted, list := filepath.Join(t.TempDir(), filepath.Base(b.file)), filepath.Join(t.TempDir(), "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{path: planted}})
	for _, err := range []error{
		err, os.WriteFile(planted, bytes.ReplaceAll(text, []byte(b.before), []byte(b.after)), 0o600), os.WriteFile(list, replaced, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}
