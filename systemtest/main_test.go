package systemtest

import (
	"bytes"
	"os"
	"testing"
	"time"

	"firsttap/internal/app"
	"firsttap/internal/config"
)

func TestMain(m *testing.M) { os.Exit(Main(m, app.SignalContext, app.Run)) }

// command runs the program's command with long timeouts, and returns its output.
func command(t *testing.T, lookup func(string) (string, bool), args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	const patience = 15 * time.Second
	err := app.Run(t.Context(), args, lookup, config.Timeouts{Redis: patience, Claim: patience, JobLock: patience}, &out)
	return out.String(), err
}
