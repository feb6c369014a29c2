package servertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Promtool is the path of Prometheus' promtool: beside FIRSTTAP_MYSQL_ROOT, where install.sh puts it, or in PATH. It is
// "promtool" in FIRSTTAP_TEST_REQUIRE.
func Promtool(t testing.TB) string {
	t.Helper()
	beside := filepath.Join(filepath.Dir(os.Getenv("FIRSTTAP_MYSQL_ROOT")), "promtool")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return pathOf(t, "promtool")
}

// HAProxy is the path of the proxy's program. It is "haproxy" in FIRSTTAP_TEST_REQUIRE.
func HAProxy(t testing.TB) string {
	t.Helper()
	return pathOf(t, "haproxy")
}

// NodePackage returns the path of Node, and checks that npm has installed the package in that folder. It is "browser" in
// FIRSTTAP_TEST_REQUIRE, as the pages' tests need the same.
func NodePackage(t testing.TB, folder, name string) (node string) {
	t.Helper()
	node, err := look("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "node_modules", name, "package.json"))
	}
	require(t, "browser", err)
	return node
}

func pathOf(t testing.TB, name string) string {
	t.Helper()
	path, err := look(name)
	require(t, name, err)
	return path
}

// require ends the test unless err is nil. The test fails if FIRSTTAP_TEST_REQUIRE contains name, and else is skipped.
func require(t testing.TB, name string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("FIRSTTAP_TEST_REQUIRE"), ","), name) {
		t.Fatalf("FIRSTTAP_TEST_REQUIRE wants %s: %v; internal/servertest/install.sh installs it", name, err)
	}
	t.Skipf("skipped, as it needs a real %s: %v; internal/servertest/install.sh installs it", name, err)
}
