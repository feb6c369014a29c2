// Command run runs the Go tests of `make test`, `make test-all` and `make soak`:
//
//	go run ./internal/servertest/run [-all | -soak] [-cover] [-pages] [-run REGEXP] [PACKAGES]
//	go run ./internal/servertest/run -exec COMMAND [ARGUMENTS]
//
// It starts one Redis, MariaDB and MySQL for all packages, compiles every test binary before the first test, and runs two packages at
// a time, and when the busiest have begun four, with -all three; with -pages the pages are one of them. At the end it prints the seconds
// by package and what was left out, and with -cover which part of each package's statements has run.
// -exec runs a command that tests, with the same servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"firsttap/internal/servertest"
)

type options struct {
	all, soak bool
	cover     bool
	pages     bool
	run       string
	packages  []string
}

func main() {
	var o options
	flag.BoolVar(&o.all, "all", false, "run every test on every database, most with -race (make test-all)")
	flag.BoolVar(&o.soak, "soak", false, "run the long tests, and only these (make soak)")
	flag.BoolVar(&o.cover, "cover", false, "print the coverage by package, of the instances too")
	flag.BoolVar(&o.pages, "pages", false, "test the pages in a browser too, unless tests or packages are named")
	flag.StringVar(&o.run, "run", "", "run the tests whose name matches, and no others")
	command := flag.Bool("exec", false, "run a command instead of the tests")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	o.pages = o.pages && o.run == "" && flag.NArg() == 0
	do := func(ctx context.Context) error { return test(ctx, o) }
	if *command {
		do = func(ctx context.Context) error { return execute(ctx, flag.Args()) }
	}
	if err := onServers(do); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// onServers calls do while the servers of a run are up, with their addresses in the environment. A signal ends do's context.
func onServers(do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(useMemory(), compileAlike()); err != nil {
		return err
	}
	environ, end, err := servertest.StartShared()
	if err != nil {
		return err
	}
	defer end()
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return do(ctx)
}

// useMemory puts the data of servers and tests into memory if that has room: a kill of a process loses nothing of it either.
func useMemory() error {
	const memory, room = "/dev/shm", 4 << 30
	var free syscall.Statfs_t
	known := syscall.Statfs(memory, &free) == nil
	if os.Getenv("TMPDIR") != "" || !known || free.Bavail*uint64(free.Bsize) < room {
		return nil
	}
	return errors.Join(os.Setenv("GOTMPDIR", os.TempDir()), os.Setenv("TMPDIR", memory))
}

func execute(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("-exec needs a command")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
