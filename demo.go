package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const demoAddr = "127.0.0.1:8080"

// demo serves the embedded default in a temporary folder, to this machine alone, with drivers who see, decline and tap, until
// ctx ends. Of the environment it reads FIRSTTAP_LOG and nothing else: no setting may lead it to anything real.
func demo(ctx context.Context, args []string, lookup func(string) (string, bool), serve startService, stdout io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("addr", "", "host:port on this machine alone; without it "+demoAddr+", or a free port if that one is taken")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("demo takes flags only, not %q", flags.Arg(0))
	}
	d := demonstration{service: serve, pace: 1, seed: mathrand.Uint64(), stdout: stdout}
	var err error
	if d.config, err = readDemoConfig(lookup); err != nil {
		return err
	}
	if *addr == "" {
		d.config.Addr, d.movable = demoAddr, true
	} else if d.config.Addr, err = loopback(*addr); err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	return d.run(ctx)
}

// readDemoConfig returns the defaults, with secrets that nobody keeps, and what belongs to a place left out.
func readDemoConfig(lookup func(string) (string, bool)) (Config, error) {
	c, err := ReadConfig(func(name string) (string, bool) {
		if name != "FIRSTTAP_LOG" {
			return "", false
		}
		if v, _ := lookup(name); v != "" {
			return v, true
		}
		return "warn", true
	})
	if err != nil {
		return c, fmt.Errorf("these settings are not right:\n%w", err)
	}
	c.DatabaseURL, c.OpsAddr, c.Drain = "", "", 0
	c.AdminKey, c.JWTSecret = rand.Text()+rand.Text(), rand.Text()+rand.Text()
	return c, nil
}

// loopback returns addr with the address in it that localhost stands for. It refuses what other machines could reach: whoever
// has the links is an admin.
func loopback(addr string) (string, error) {
	if err := checkAddress(addr); err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if host == "localhost" {
		host = "127.0.0.1" // whatever this machine's hosts file says
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%q is not on this machine alone: want 127.0.0.1:PORT, [::1]:PORT or localhost:PORT", addr)
	}
	return net.JoinHostPort(host, port), nil
}

// startService serves c until ctx ends, and returns when it listens. What ended the service comes over the channel.
type startService = func(ctx context.Context, c Config, log *slog.Logger) (url string, over <-chan error, err error)

// demonstration is a demo to be run.
type demonstration struct {
	service startService
	config  Config // without a database
	movable bool   // another port will do where the address is taken
	pace    int    // how many times as fast as people everybody is
	seed    uint64 // of everything that is left to chance
	stdout  io.Writer
}

// run returns nil when ctx has ended, and an error when the service has. It leaves nothing behind.
func (d demonstration) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "firsttap-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d.config.DatabaseURL = "sqlite://" + filepath.Join(dir, "demo.db")
	log := newLogger(d.stdout, d.config.LogLevel)
	// The people go first, and the service that they call goes after them.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	url, over, err := d.serve(serving, log)
	if err != nil {
		return err
	}
	living, leave := context.WithCancel(ctx)
	defer leave()
	lived := make(chan error, 1)
	go func() { lived <- d.live(living, url, log) }()
	select {
	case err := <-lived:
		stop()
		return errors.Join(err, <-over)
	case err := <-over:
		leave()
		return errors.Join(errors.New("the service has ended"), err, <-lived)
	}
}

func (d demonstration) serve(ctx context.Context, log *slog.Logger) (url string, over <-chan error, err error) {
	url, over, err = d.service(ctx, d.config, log)
	if d.movable && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(d.config.Addr) // it was listened on
		d.config.Addr = net.JoinHostPort(host, "0")
		return d.service(ctx, d.config, log)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", nil, fmt.Errorf("--addr %s: %w", d.config.Addr, syscall.EADDRINUSE)
	}
	return url, over, err
}

// live makes the town, prints the links, and has everybody in it do as they do until ctx ends.
func (d demonstration) live(ctx context.Context, url string, log *slog.Logger) error {
	const connections = 32
	client := &http.Client{
		Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}, Timeout: 10 * time.Second,
	}
	defer client.CloseIdleConnections()
	town := demoTown{api: demoAPI{client: client, url: url}, key: d.config.AdminKey, pace: d.pace, seed: d.seed, log: log}
	if err := town.found(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("make the demo's drivers and dispatches: %w", err)
	}
	d.printLinks(url, town.visitors[:])
	town.run(ctx)
	return nil
}

func (d demonstration) printLinks(url string, visitors []demoVisitor) {
	fmt.Fprintf(d.stdout, `The demo is ready, for this machine alone. Nothing in it is real, and nothing is kept.

  console   %s/console/#key=%s
            the board moves by itself; open a dispatch to see who tapped when
`, url, d.config.AdminKey)
	todo := map[string]string{
		"A": "a phone: about every 20 s an offer comes that only A and B are told of",
		"B": "another phone, in a window beside A's: tap Accept in both, and see who was first",
	}
	for _, v := range visitors {
		fmt.Fprintf(d.stdout, "  driver %s  %s/driver/#token=%s\n            %s\n", v.letter, url, v.token, todo[v.letter])
	}
	fmt.Fprintln(d.stdout, "\nCtrl-C ends it.")
}
