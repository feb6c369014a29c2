// Command fcmsim serves a simulation of Firebase Cloud Messaging, and of the phones behind it, on an address of its own;
// see package fcmtest.
//
//	go run ./notify/fcmsim -addr 127.0.0.1:9099 -latency 50ms -stats 5s
//
// These requests control it while it runs:
//
//	GET  /sim/stats               the counts
//	GET  /sim/knobs               the knobs; PUT replaces them, PATCH changes those named
//	POST /sim/kill?token=T        also revive, foreign, offline, online
//	POST /sim/poison?match=M      refuse messages that contain M; DELETE ends it
//	GET  /sim/device?token=T      the state of that phone
//	GET  /sim/subscribers?topic=T
//	GET  /sim/sends               the last requests, with -keep
//
// There is no authentication, so it listens on the loopback interface by default.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"firsttap/notify/fcmtest"
)

func main() {
	debug.SetGCPercent(200) // leaves more of the processors to the program that is measured
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "fcmsim:", err)
		os.Exit(1)
	}
}

// config holds the flags.
type config struct {
	addr  string
	stats time.Duration
	keep  int
	knobs fcmtest.Knobs
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("fcmsim", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.addr, "addr", "127.0.0.1:9099", "`address` to listen on; port 0 is a free one")
	f.DurationVar(&c.stats, "stats", 0, "print a line of totals every `interval`; 0 for never")
	f.IntVar(&c.keep, "keep", 0, "remember the last `n` requests for /sim/sends")
	k := &c.knobs
	f.DurationVar(&k.Latency, "latency", 0, "`time` from a request to its answer")
	f.DurationVar(&k.Jitter, "jitter", 0, "random `time` added to the latency, at most this")
	f.IntVar(&k.Status, "status", 0, "answer sends with this error `status`")
	f.StringVar(&k.ErrorCode, "error-code", "", "FCM's errorCode with -status; - for none")
	f.StringVar(&k.RetryAfter, "retry-after", "", "the header with errors: seconds or an HTTP `date`")
	f.Float64Var(&k.Rate, "rate", 0, "`share` of sends that -status applies to (default all)")
	f.BoolVar(&k.Hang, "hang", false, "never answer")
	f.Float64Var(&k.Drop, "drop", 0, "`share` of sends cut off and not accepted")
	f.Float64Var(&k.DropAfterAccept, "drop-after-accept", 0, "`share` of sends accepted and cut off")
	f.Float64Var(&k.HangAfterAccept, "hang-after-accept", 0, "`share` of sends accepted and never answered")
	f.Float64Var(&k.BadJSON, "bad-json", 0, "`share` of sends accepted and answered unreadably")
	f.IntVar(&k.QuotaPerMinute, "quota-per-minute", 0, "accept `n` sends a minute")
	f.IntVar(&k.QuotaPerSecond, "quota-per-second", 0, "accept `n` sends a second")
	f.IntVar(&k.TopicStatus, "topic-status", 0, "answer topic calls with this error `status`")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if c.keep < 0 || c.keep > maxKeep || c.stats < 0 {
		return c, fmt.Errorf("-keep must be between 0 and %d, -stats not negative", maxKeep)
	}
	return c, k.Validate()
}

// maxKeep bounds the memory of -keep; a request takes some 3 kB.
const maxKeep = 100_000

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	sim := fcmtest.New()
	defer sim.Close()
	sim.KeepSends(c.keep)
	sim.Set(func(k *fcmtest.Knobs) { *k = c.knobs })
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", sim)
	mux.Handle("/sim/", control(sim))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "fcmsim: FCM is http://%s/v1\n", listener.Addr())
	err = report(ctx, sim, c.stats, stdout, served)
	_ = server.Close() // its error is of no use; requests that hang end too
	if err == nil {    // ctx has ended
		if err = <-served; errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
	}
	fmt.Fprintln(stdout, summary(sim.Stats(), fcmtest.Stats{}, 0))
	return err
}

// report prints totals until ctx or the server ends, and returns why the server did.
func report(ctx context.Context, sim *fcmtest.Server, every time.Duration, stdout io.Writer, served <-chan error) error {
	var tick <-chan time.Time
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		tick = ticker.C
	}
	var last fcmtest.Stats
	for {
		select {
		case <-tick:
			now := sim.Stats()
			fmt.Fprintln(stdout, summary(now, last, every))
			last = now
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// summary returns a line with the totals, and the rate of sends since the last totals.
func summary(now, last fcmtest.Stats, since time.Duration) string {
	rate := ""
	if since > 0 {
		rate = fmt.Sprintf(" (%.0f/s)", float64(now.Requests-last.Requests)/since.Seconds())
	}
	return fmt.Sprintf("requests %d%s accepted %d unanswered %d statuses %v topic calls %d under way %d peak %d; "+
		"devices %d received %d duplicates %d visible %d",
		now.Requests, rate, now.Accepted, now.Unanswered, now.Statuses, now.TopicCalls, now.InFlight, now.Peak,
		now.Devices, now.Received, now.Duplicates, now.Visible)
}
