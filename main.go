// Command firsttap decides, race-safe and at once, which driver gets a dispatch.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"firsttap/internal/app"
	"firsttap/internal/config"
)

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		// Little is kept from request to request: a heap of tens of megabytes may well grow fourfold between collections.
		debug.SetGCPercent(400)
	}
	// A container that exceeds its memory is killed. Near the limit, the process collects more often instead. Where no limit can be read,
	// none is set.
	_, _ = memlimit.Set()
	ctx, stop := app.SignalContext(context.Background())
	var names []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	err := app.Run(ctx, os.Args[1:], os.LookupEnv, config.Timeouts{}, os.Stdout, names...)
	stop()
	if err != nil {
		app.Fail(os.Args[1:], err, os.Stdout, os.Stderr)
		os.Exit(1)
	}
}
