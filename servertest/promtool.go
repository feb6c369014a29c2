package servertest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Promtool returns where Prometheus' promtool is: beside FIRSTTAP_MYSQL_ROOT, where install.sh puts it, or in PATH. It is
// "promtool" in FIRSTTAP_TEST_REQUIRE.
func Promtool(t testing.TB) string {
	t.Helper()
	beside := filepath.Join(filepath.Dir(os.Getenv("FIRSTTAP_MYSQL_ROOT")), "promtool")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	path, err := exec.LookPath("promtool")
	if err != nil {
		err = errors.New("promtool is not installed")
	}
	require(t, "promtool", err)
	return path
}
