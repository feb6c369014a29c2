package systemtest

import (
	"bytes"
	"os"
	"testing"

	"firsttap/app"
)

func TestMain(m *testing.M) { os.Exit(Main(m, app.SignalContext, app.RunWith)) }

// command runs the program's command and returns its output.
func command(t *testing.T, lookup func(string) (string, bool), args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := app.Run(t.Context(), args, lookup, &out)
	return out.String(), err
}
