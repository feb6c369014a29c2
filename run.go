package main

import (
	"context"
	"fmt"
	"io"
)

// version is set by the build.
var version = "dev"

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
		return demo(ctx, args, lookup, serveBeside, stdout)
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
