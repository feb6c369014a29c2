package systemtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"firsttap/servertest"
)

// runAsInstance is set in the environment when Start runs the test binary as an instance.
const runAsInstance = "FIRSTTAP_TEST_MAIN"

// Main is for the TestMain of each package that calls Start. It makes the test binary the program too, so that instances
// are processes that tests can kill. Its arguments are app.SignalContext and app.Run; it returns the exit code.
func Main(m *testing.M, signals func(context.Context) (context.Context, func()),
	run func(ctx context.Context, args []string, lookup func(string) (string, bool), stdout io.Writer) error,
) int {
	if os.Getenv(runAsInstance) == "" {
		return servertest.Main(m)
	}
	ctx, stop := signals(context.Background())
	defer stop()
	if err := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "firsttap:", err)
		return 1
	}
	return 0
}
