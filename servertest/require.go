package servertest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// require ends the test unless err is nil. The test fails if FIRSTTAP_TEST_REQUIRE contains name, and else is skipped.
func require(t testing.TB, name string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("FIRSTTAP_TEST_REQUIRE"), ","), name) {
		t.Fatalf("FIRSTTAP_TEST_REQUIRE wants %s: %v; servertest/install.sh installs it", name, err)
	}
	t.Skipf("skipped, as it needs a real %s: %v; servertest/install.sh installs it", name, err)
}
