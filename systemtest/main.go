package systemtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"firsttap/internal/config"
	"firsttap/internal/servertest"
)

// Variables of an instance's environment that Main reads, for no production program does.
const (
	runAsInstance = "FIRSTTAP_TEST_MAIN" // set when the test binary runs as an instance
	redisTimeout  = "FIRSTTAP_TEST_REDIS_TIMEOUT"
	claimTimeout  = "FIRSTTAP_TEST_CLAIM_TIMEOUT"
	otherTimeout  = "FIRSTTAP_TEST_OTHER_TIMEOUT" // of the live streams and the locks of jobs
	pushLease     = "FIRSTTAP_TEST_PUSH_LEASE"
	pushTimeout   = "FIRSTTAP_TEST_PUSH_TIMEOUT"
	stopTimeout   = "FIRSTTAP_TEST_STOP_TIMEOUT"
)

// Settings of an instance's timeouts.
const (
	// QuickRedis and QuickClaims are as in production, for an instance that is to notice at once that a server does not answer.
	QuickRedis  = redisTimeout + "=100ms"
	QuickClaims = claimTimeout + "=2s"
	// Other instances are patient: a server that answers is not taken for one that does not, however busy the machine is.
	patientRedis  = redisTimeout + "=15s"
	patientClaims = claimTimeout + "=25s" // less than the 30 s after which the service ends an answer
	patientOthers = otherTimeout + "=5s"
)

// Main is for the TestMain of each package that calls Start. It makes the test binary the program too, so that instances
// are processes that tests can kill. Its arguments are app.SignalContext and app.Run; it returns the exit code.
func Main(m *testing.M, signals func(context.Context) (context.Context, func()),
	run func(
		ctx context.Context, args []string, lookup func(string) (string, bool), timeouts config.Timeouts, stdout io.Writer, names ...string,
	) error,
) int {
	if os.Getenv(runAsInstance) == "" {
		return servertest.Main(m)
	}
	ctx, stop := signals(context.Background())
	defer stop()
	timeouts := config.Timeouts{
		Redis: durationIn(
			redisTimeout,
		), Claim: durationIn(claimTimeout), PushLease: durationIn(pushLease), Push: durationIn(pushTimeout), Stop: durationIn(stopTimeout),
		Stream: durationIn(otherTimeout), JobLock: durationIn(otherTimeout),
	}
	if err := run(ctx, os.Args[1:], os.LookupEnv, timeouts, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "firsttap:", err)
		return 1
	}
	return 0
}

// durationIn returns what the variable says, 0 if it is not set.
func durationIn(name string) time.Duration {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return d
}
