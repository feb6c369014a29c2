// Command bench compares FirstTap's accept with other ways to give one job to one of many drivers: the same Redis, the
// same database server, the same taps, in turns within one run. It prints a table; it fails on wrong answers only.
//
//	go run ./loadtest/bench            # about seven minutes
//	go run ./loadtest/bench -quick     # a short check that it works
//	go run ./loadtest/bench -database mysql
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"firsttap/internal/servertest"
)

func main() {
	if len(os.Args) == 6 && os.Args[1] == serveCommand {
		fail(serveComparison(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fail(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func fail(err error) {
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func processors() int { return runtime.NumCPU() }

// options are the flags.
type options struct {
	rounds      int
	seconds     float64
	connections []int
	ways        []string
	order       order
	orderName   string
	database    string
	binary      string
	ops         string
	quick       bool
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 5, "how often every way has its turn")
	flags.Float64Var(&o.seconds, "seconds", 2, "how long each phase of a turn lasts")
	connections := flags.String("connections", "30,200", "how many drivers tap, a comma list")
	only := flags.String("only", "", "run these ways only, a comma list of "+strings.Join(ways, ", "))
	by := flags.String("order", "together",
		"of the taps in the rate phase: apart, every connection at its own pace, or together, one dispatch after the other")
	flags.BoolVar(&o.quick, "quick", false, "one round of 0.5 s: shows that it works, not how fast")
	flags.StringVar(&o.database, "database", servertest.MariaDB, "the database server: "+servertest.MariaDB+" or "+servertest.MySQL)
	flags.StringVar(&o.binary, "firsttap", "", "measure this FirstTap binary instead of building one")
	flags.StringVar(&o.ops, "ops", "", "where FirstTap serves pprof and metrics meanwhile, host:port")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.rounds, o.seconds = 1, 0.5
	}
	for _, word := range strings.Split(*connections, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 2 || n > 5000 {
			return o, fmt.Errorf("-connections: %q is not a number from 2 to 5000", word)
		}
		o.connections = append(o.connections, n)
	}
	if o.orderName, o.order = *by, orders[*by]; o.order == nil {
		return o, fmt.Errorf("-order: %q is neither apart nor together", *by)
	}
	o.ways = ways
	if *only != "" {
		o.ways = strings.Split(*only, ",")
	}
	for _, way := range o.ways {
		if !slices.Contains(ways, way) {
			return o, fmt.Errorf("-only: %q is none of %s", way, strings.Join(ways, ", "))
		}
	}
	if o.rounds < 1 || o.seconds < 0.1 {
		return o, errors.New("-rounds from 1, -seconds from 0.1")
	}
	return o, nil
}

// run measures and prints. It returns an error for what could not be measured, and for wrong answers of FirstTap.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	s, err := startStack(o.database)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	if o.binary == "" && slices.Contains(o.ways, wayFirstTap) {
		if o.binary, err = build(ctx, s); err != nil {
			return err
		}
	}
	r, err := enter(ctx, s, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s, %d processors, %s. %d rounds of %g s, ways in turns, taps %s, medians of per-round ratios (least–most).\n\n",
		s.versions(), processors(), runtime.Version(), o.rounds, o.seconds, o.orderName)
	lives, err := o.lives(ctx, s)
	if err != nil {
		return err
	}
	if lives != nil {
		defer lives.close()
	}
	for round := range o.rounds {
		if err := r.round(ctx, round, stderr); err != nil {
			return err
		}
		if lives == nil {
			continue
		}
		if err := lives.turn(ctx); err != nil {
			r.print(stdout) // what has been measured is not lost
			return fmt.Errorf("the life of a dispatch: %w", err)
		}
	}
	r.print(stdout)
	if lives != nil {
		lives.print(stdout)
	}
	if slices.Contains(o.ways, wayFirstTap) && r.wrong(wayFirstTap) != "" {
		return errors.New("FirstTap gave wrong answers")
	}
	return nil
}

// lives prepares the measurement of a dispatch's life, nil if FirstTap and the simple flow don't both run.
func (o options) lives(ctx context.Context, s *stack) (*life, error) {
	if !slices.Contains(o.ways, wayFirstTap) || !slices.Contains(o.ways, waySimple) {
		return nil, nil
	}
	n := lifeDispatches
	if o.quick {
		n = 10
	}
	return newLife(ctx, s, o.binary, n)
}

// enter prepares all contests.
func enter(ctx context.Context, s *stack, o options) (report, error) {
	r := report{ways: o.ways, connections: o.connections, order: o.orderName, contests: map[string]map[int]*contest{}}
	if err := createComparisonTable(ctx, s); err != nil {
		return r, err
	}
	for _, way := range o.ways {
		var e entrant = comparison{stack: s, way: way}
		if way == wayFirstTap {
			p, err := newProduct(ctx, s, "firsttap", o.binary, "FIRSTTAP_OPS_ADDR="+o.ops)
			if err != nil {
				return r, err
			}
			e = p
		}
		r.contests[way] = map[int]*contest{}
		for _, c := range o.connections {
			length := time.Duration(o.seconds * float64(time.Second))
			r.contests[way][c] = &contest{stack: s, entrant: e, racers: c, length: length, order: o.order}
		}
	}
	return r, nil
}

// round gives every way its turn at every number of connections. The order rotates from round to round, so that no way
// always runs after the same one.
func (r report) round(ctx context.Context, round int, progress io.Writer) error {
	for _, c := range r.connections {
		for i := range r.ways {
			way := r.ways[(i+round)%len(r.ways)]
			contest := r.contests[way][c]
			if err := contest.turn(ctx); err != nil {
				return fmt.Errorf("%s at %d connections: %w", way, c, err)
			}
			f := contest.rounds[len(contest.rounds)-1]
			fmt.Fprintf(progress, "round %d  %3d connections  %-10s  %7.0f requests/s  ", round+1, c, way, f.rate)
			fmt.Fprintf(progress, "%4.0f us (server %.1f, Redis %.1f, database %.1f)  ", f.cpu, f.parts[0], f.parts[1], f.parts[2])
			fmt.Fprintf(progress, "loser %.2f ms  winner %.2f ms  %s\n", loser50(f), winner50(f), f.wrong)
			if f.wrong != "" {
				fmt.Fprintf(progress, "its log ends:\n%s\n", f.log)
			}
		}
	}
	return nil
}
