package systemtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"firsttap/app"
	"firsttap/servertest"
)

// TestMain is also the program itself: instances are processes, so that tests can stop and kill them.
func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		os.Exit(program())
	}
	os.Exit(servertest.Main(m))
}

// program does what the command does, but for its garbage collector's setting.
func program() int {
	ctx, stop := app.SignalContext(context.Background())
	defer stop()
	if err := app.Run(ctx, os.Args[1:], os.LookupEnv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "firsttap:", err)
		return 1
	}
	return 0
}

// command runs the program in an empty folder, and returns what it prints.
func command(t *testing.T, lookup func(string) (string, bool), args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := app.Run(t.Context(), args, lookup, &out)
	return out.String(), err
}
