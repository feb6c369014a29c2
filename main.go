// Command firsttap decides, race-safe and at once, which driver gets a dispatch.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"firsttap/migrations"
	"firsttap/repository"
)

// version is set by the build.
var version = "dev"

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		// Little is kept from request to request: a heap of tens of megabytes may well grow fourfold between collections.
		debug.SetGCPercent(400)
	}
	ctx, stop := untilTold(context.Background())
	err := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "firsttap:", err)
		os.Exit(1)
	}
}

const usage = `firsttap decides which driver gets a dispatch.

  firsttap [serve]                     serve the API
  firsttap demo [--addr HOST:PORT]     a service of its own with drivers who tap, to be tried in the browser
  firsttap migrate up|down|status      the database's schema
  firsttap lock ls|show NAME|release NAME
                                       the scheduled jobs' locks
  firsttap race [--url URL] [--drivers N]
                                       let N drivers tap together and see who wins
  firsttap version

Settings are environment variables; see README.md.
`

// run does what args ask for until it is done or ctx ends.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout io.Writer) error {
	command := "serve"
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "version":
		fmt.Fprintln(stdout, "firsttap", version)
		return nil
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	case "demo":
		return demo(ctx, args, lookup, stdout)
	case "serve", "migrate", "lock", "race":
	default:
		return fmt.Errorf("no such command: %s\n\n%s", command, usage)
	}
	config, err := ReadConfig(lookup)
	if err != nil {
		return fmt.Errorf("these settings are not right:\n%w", err)
	}
	log := newLogger(stdout, config.LogLevel)
	switch command {
	case "migrate":
		return migrate(ctx, config, log, args, stdout)
	case "lock":
		return lockCommand(ctx, config, args, stdout)
	case "race":
		return race(ctx, config, args, stdout)
	}
	if len(args) > 0 {
		return fmt.Errorf("serve takes no arguments\n\n%s", usage)
	}
	return serve(ctx, config, log, stdout)
}

// newLogger writes text to a terminal and JSON to anything else.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(slog.NewTextHandler(w, opts))
		}
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// openTime is how long a database may take to be there.
const openTime = 30 * time.Second

func open(ctx context.Context, c Config, log *slog.Logger) (*repository.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	return repository.Open(ctx, c.DatabaseURL, log)
}

func migrate(ctx context.Context, c Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("migrate takes up, down or status")
	}
	store, err := open(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Migrate(func(m *migrations.Migrator) error {
		switch args[0] {
		case "up":
			n, err := m.Up(ctx)
			fmt.Fprintf(stdout, "%d applied\n", n)
			return err
		case "down":
			took, err := m.Down(ctx)
			if err == nil && !took {
				fmt.Fprintln(stdout, "nothing to take back")
			}
			return err
		case "status":
			return m.Status(ctx, stdout)
		}
		return fmt.Errorf("migrate takes up, down or status, not %s", args[0])
	})
}
