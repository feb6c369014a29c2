package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"firsttap/internal/config"
	"firsttap/internal/demo"
	"firsttap/internal/telemetry"
)

// Version is this release.
const Version = "1.0.0"

const usage = `firsttap decides which driver gets a dispatch.

  firsttap [serve]                     serve the API
  firsttap demo [--addr HOST:PORT]     start a temporary service with simulated drivers, to try in the browser
  firsttap migrate up|down|status [--yes]
                                       apply, revert or list the migrations of the database; --yes reverts without asking
  firsttap lock ls|show NAME|release NAME
                                       the scheduled jobs' locks
  firsttap doctor [--json]             check the settings and all that they name: what works, what does not, what to do
  firsttap race [--url URL] [--drivers N]
                                       let N drivers accept one dispatch at the same time; exactly one wins
  firsttap version

Settings are environment variables; see README.md.
`

// Run runs the command that args name, until it is done or ctx ends. lookup is the environment, and names are those of its variables; none
// if they are not to be checked. The timeouts are zero in service, others in tests.
func Run(
	ctx context.Context, args []string, lookup func(string) (string, bool), timeouts config.Timeouts, stdout io.Writer, names ...string,
) error {
	command := "serve"
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "version":
		fmt.Fprintln(stdout, "firsttap", Version)
		return nil
	case "help", "-h", "--help":
		help(lookup, stdout)
		return nil
	case "demo":
		return demo.Command(ctx, args, lookup, ServeInBackground, stdout)
	case "doctor":
		return doctorCommand(ctx, args, lookup, names, timeouts, stdout)
	case "serve", "migrate", "lock", "race":
	default:
		return fmt.Errorf("no such command: %s\n\n%s", command, usage)
	}
	c, err := readConfig(lookup, names...)
	if command == "migrate" || command == "lock" {
		err = config.WithoutSecrets(err)
	}
	if err != nil {
		return fmt.Errorf("invalid settings:\n%w", err)
	}
	c.Timeouts = timeouts
	log := telemetry.NewLogger(stdout, c.LogLevel)
	switch command {
	case "migrate":
		return migrate(ctx, c, log, args, stdout)
	case "lock":
		return lockCommand(ctx, c, log, args, stdout)
	case "race":
		return race(ctx, c, args, stdout)
	}
	if len(args) > 0 {
		return fmt.Errorf("serve takes no arguments\n\n%s", usage)
	}
	return Serve(ctx, c, log, func(r Ready) { r.announce(stdout) })
}

// Fail tells why the command that args name has failed: the service in its log, as a line of JSON unless that goes to a terminal, and any
// other command on stderr.
func Fail(args []string, err error, stdout, stderr io.Writer) {
	if (len(args) == 0 || args[0] == "serve") && !telemetry.IsTerminal(stdout) {
		telemetry.NewLogger(stdout, slog.LevelInfo).Error("firsttap ends with an error", "version", Version, "error", err)
		return
	}
	fmt.Fprintln(stderr, "firsttap:", err)
}

// help prints the commands, and the first steps with the service of these settings, or of the usual ones if they are invalid.
func help(lookup func(string) (string, bool), stdout io.Writer) {
	c, err := config.Read(lookup)
	if err != nil {
		c, _ = config.Read(func(string) (string, bool) { return "", false })
	}
	fmt.Fprint(stdout, usage, "\nWhile it serves:\n\n")
	printSteps(stdout, firstSteps(urlOf(c.Addr), c))
}

// instanceName shows operators which process it was: host and process id. It is not unique.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	const size = 40 // bytes of the host's name; the ledger has 60 for all of it
	return fmt.Sprintf("%.*s:%d", size, host, os.Getpid())
}
