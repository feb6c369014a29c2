package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const module = "firsttap"

// raced are the packages whose goroutines share memory: `make test` runs these with the race detector, and the others without.
var raced = []string{
	"dispatch/cronjob", "handler", "internal/app", "internal/auth", "internal/limit", "internal/redisclient", "internal/telemetry", "lock",
	"notify", "notify/fcm", "notify/fcmtest", "notify/stream", "schedule", "service",
}

// slowlyRaced are packages that take several times as long with the race detector. Only the named tests run with it, and the others
// run without. In those of handler, requests or streams meet; nearly all others make one request after another. In those of systemtest,
// an instance does many things at once: the instances are the same program, so the detector watches them too.
var (
	slowlyRaced = map[string]string{
		"handler": "^Test(StrangersWait|TwentyAtOnce|RedriveOverHTTP|OneSearchAKey|Searches.*|PreviewsGoOn|Shutdown|" +
			"(No)?Stream.*|FormOfAStream|AStreamGoesByTheChange|HangingUpEndsTheStream|A?Client.*|AcceptW.*|MemoryOfAStream|TokensEnd|" +
			"KeysOfTwoInstances|SessionsOfInstances)$",
	}
	slowlyRacedInAll = map[string]string{
		"systemtest": "^Test(ExactlyOneWinner|RoundsUnderFire|RequestsFinish|RollingRestart|JobsOverInstances|" +
			"PhonesShowWhatIsTrue|KilledInstancesLoseNothing|WebhooksOutliveKills|TraceOfAnAccept)$",
	}
)

// unwatched are the flags that leave SQLite, which is C translated to Go, and its driver without the race detector: watching their own
// memory takes most of the time of a test on SQLite. For each package only the last flag counts whose pattern matches it, so these flags
// repeat goFlags' -dwarf=false. The flag of SQLite itself is last: a program knows only the last flag that it was built with, and
// systemtest's buildProgram repeats that one.
var unwatched = []string{
	"-gcflags=github.com/glebarez/go-sqlite/...=-race=false -dwarf=false", "-gcflags=modernc.org/...=-race=false -dwarf=false",
}

// goFlags are the flags of all that is compiled for the tests, as in the Makefile: what one of them compiles the others share, and so do
// all checkouts of a commit. They leave out the debug information, which takes a tenth of a first compilation.
const goFlags = "-trimpath -buildvcs=false -gcflags=all=-dwarf=false"

// compileAlike sets the environment of all programs that this one starts. Only the race detector needs cgo: see compile.
func compileAlike() error {
	flags, err := goOutput(context.Background(), "env", "GOFLAGS")
	if err != nil {
		return err
	}
	if flags = strings.TrimSpace(flags); !strings.HasSuffix(flags, goFlags) {
		flags = strings.TrimSpace(flags + " " + goFlags)
	}
	return errors.Join(os.Setenv("GOFLAGS", flags), os.Setenv("CGO_ENABLED", "0"))
}

// longest are the packages that take longest. They begin first, in this order, so that no processor is idle at the end: lock and
// servertest, which wait a lot, run beside packages that compute.
var longest = []string{
	"systemtest", "lock", "repository/dispatches", "repository/database", "repository/pushes", "repository/webhooks", "notify", "schedule",
	"internal/servertest", "handler", "migrations", "systemtest/sim",
	"internal/app", "service", "notify/stream", "internal/limit", "notify/fcm",
}

// suite is a package's tests as one compiled program.
type suite struct {
	pkg  string // without the module
	dir  string
	race bool
	soak bool
	twin bool   // another package has a program of that name
	run  string // a pattern of test names; all tests if it is empty
	skip string // a pattern of test names
}

// binary is where the compiler puts the program in a folder for all.
func (s suite) binary(dir string) string {
	return filepath.Join(folder(dir, s.race, s.twin), path.Base(s.path())+".test")
}

// folder is where programs are: the go command names them by the last part of their packages' paths.
func folder(dir string, race, twin bool) string {
	name := "plain"
	if race {
		name = "race"
	}
	if twin {
		name += "-twins"
	}
	return filepath.Join(dir, name)
}

func (s suite) path() string { return path.Join(module, s.pkg) }

func (s suite) String() string {
	if s.race {
		return s.path() + " -race"
	}
	return s.path()
}

// suites lists what the options choose, the longest first.
func suites(ctx context.Context, o options) ([]suite, error) {
	list := []string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}
	out, err := goOutput(ctx, slices.Concat(list, o.tags(), o.packages)...)
	if err != nil {
		return nil, err
	}
	var all []suite
	named := map[string]bool{}
	for line := range strings.Lines(out) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		s := suite{pkg: strings.TrimPrefix(strings.TrimPrefix(name, module), "/"), dir: dir, run: o.run}
		s.twin, named[path.Base(s.path())] = named[path.Base(s.path())], true
		if o.soak {
			long, err := filepath.Glob(filepath.Join(dir, "*_soak_test.go"))
			if err != nil || len(long) == 0 {
				continue
			}
			s.soak, s.run = true, cmp.Or(o.run, "^TestSoak")
			all = append(all, s)
			continue
		}
		s.race = o.all || slices.Contains(raced, s.pkg)
		if some := o.slowlyRaced()[s.pkg]; some != "" && o.run == "" {
			all = append(all, suite{pkg: s.pkg, dir: s.dir, race: true, twin: s.twin, run: some})
			s.race, s.skip = false, some
		}
		all = append(all, s)
	}
	rank := func(s suite) int {
		if i := slices.Index(longest, s.pkg); i >= 0 {
			return i
		}
		return len(longest)
	}
	slices.SortStableFunc(all, func(a, b suite) int { return cmp.Compare(rank(a), rank(b)) })
	return all, nil
}

func (o options) slowlyRaced() map[string]string {
	if o.all {
		return slowlyRacedInAll
	}
	return slowlyRaced
}

// later says how many packages more run at a time once the busiest have begun: the others wait more than they compute.
func (o options) later() (busiest, more int) {
	if o.all {
		return 3, 1 // systemtest, with and without the race detector, and lock
	}
	return 7, 2
}

func (o options) tags() []string {
	if o.soak {
		return []string{"-tags=soak"}
	}
	return nil
}

// test compiles the tests and runs them.
func test(ctx context.Context, o options) error {
	begin := time.Now()
	if o.all || o.soak {
		if err := os.Setenv("FIRSTTAP_TEST", "all"); err != nil {
			return err
		}
	}
	all, err := suites(ctx, o)
	if err != nil {
		return err
	}
	var coverage string // the folder, "" for none
	if o.cover {
		if coverage, err = count("bin/coverage"); err != nil {
			return err
		}
	}
	dir, release, err := programs(ctx, o)
	if err != nil {
		return err
	}
	defer release()
	if err := whole(dir, func() error { return compile(ctx, o, dir, all) }); err != nil {
		return err
	}
	fmt.Printf("compiled %d test programs in %.0f s\n", len(all), time.Since(begin).Seconds())

	var runs []func() *result
	for _, s := range all {
		runs = append(runs, func() *result { return runSuite(ctx, s, s.binary(dir), coverage) })
	}
	if o.pages {
		place := 0 // first, as they take long
		if o.all {
			// Beside handler and later: whole instances with the race detector leave a browser too little time.
			place = slices.IndexFunc(all, func(s suite) bool { return s.pkg == "handler" })
		}
		runs = slices.Insert(runs, max(place, 0), func() *result { return runPages(ctx) })
	}
	results := make([]*result, len(runs))
	next := make(chan int)
	busiest, more := o.later()
	var workers sync.WaitGroup
	work := func() {
		for i := range next {
			results[i] = runs[i]()
			results[i].print()
		}
	}
	for i := range runs {
		if i < atOnce || i >= busiest && i < busiest+more {
			workers.Go(work)
		}
		next <- i
	}
	close(next)
	workers.Wait()
	err = report(results, time.Since(begin))
	if o.cover {
		err = errors.Join(err, printCoverage(ctx, coverage))
	}
	return err
}

// compile builds the test programs with all processors: first those without the race detector, which share most packages. It leaves vet,
// which needs a fifth of a first compilation, to `make check`.
func compile(ctx context.Context, o options, dir string, all []suite) error {
	for _, race := range []bool{false, true} {
		for _, twin := range []bool{false, true} {
			wanted := func(s suite) bool { return s.race == race && s.twin == twin }
			if err := compileInto(ctx, o, folder(dir, race, twin), race, wanted, all); err != nil {
				return err
			}
		}
	}
	return nil
}

func compileInto(ctx context.Context, o options, dir string, race bool, wanted func(suite) bool, all []suite) error {
	args := slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, o.tags())
	if race {
		args = append(append(args, "-race"), unwatched...)
	}
	none := true
	for _, s := range all {
		if wanted(s) {
			args, none = append(args, s.dir), false
		}
	}
	if none {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	if race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	_, err := printed(cmd)
	return err
}

// goOutput runs the go command, and returns what it prints.
func goOutput(ctx context.Context, args ...string) (string, error) {
	return printed(exec.CommandContext(ctx, "go", args...))
}

func printed(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}
