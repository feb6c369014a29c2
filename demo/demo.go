package demo

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

	"firsttap/config"
	"firsttap/telemetry"
)

const demoAddr = "127.0.0.1:8080"

// Command serves the embedded default in a temporary folder, to this machine alone, with drivers who see, decline and tap, until
// ctx ends. Of the environment it reads FIRSTTAP_LOG and nothing else: no setting may lead it to anything real.
func Command(ctx context.Context, args []string, lookup func(string) (string, bool), serve StartService, stdout io.Writer) error {
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
	d := Demo{Service: serve, Pace: 1, Seed: mathrand.Uint64(), Stdout: stdout}
	var err error
	if d.Config, err = ReadConfig(lookup); err != nil {
		return err
	}
	if *addr == "" {
		d.Config.Addr, d.Movable = demoAddr, true
	} else if d.Config.Addr, err = Loopback(*addr); err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	return d.Run(ctx)
}

// ReadConfig returns the defaults, with secrets that nobody keeps, and what belongs to a place left out.
func ReadConfig(lookup func(string) (string, bool)) (config.Config, error) {
	c, err := config.Read(func(name string) (string, bool) {
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

// Loopback returns addr with the address in it that localhost stands for. It refuses what other machines could reach: whoever
// has the links is an admin.
func Loopback(addr string) (string, error) {
	if err := config.CheckAddress(addr); err != nil {
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

// StartService serves c until ctx ends, and returns when it listens. What ended the service comes over the channel.
type StartService = func(ctx context.Context, c config.Config, log *slog.Logger) (url string, over <-chan error, err error)

// Demo is a demo to be run.
type Demo struct {
	Service StartService
	Config  config.Config // without a database
	Movable bool          // another port will do where the address is taken
	Pace    int           // how many times as fast as people everybody is
	Seed    uint64        // of everything that is left to chance
	Stdout  io.Writer
}

// Run returns nil when ctx has ended, and an error when the service has. It leaves nothing behind.
func (d Demo) Run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "firsttap-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d.Config.DatabaseURL = "sqlite://" + filepath.Join(dir, "demo.db")
	log := telemetry.NewLogger(d.Stdout, d.Config.LogLevel)
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

func (d Demo) serve(ctx context.Context, log *slog.Logger) (url string, over <-chan error, err error) {
	url, over, err = d.Service(ctx, d.Config, log)
	if d.Movable && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(d.Config.Addr) // it was listened on
		d.Config.Addr = net.JoinHostPort(host, "0")
		return d.Service(ctx, d.Config, log)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", nil, fmt.Errorf("--addr %s: %w", d.Config.Addr, syscall.EADDRINUSE)
	}
	return url, over, err
}

// live makes the town, prints the links, and has everybody in it do as they do until ctx ends.
func (d Demo) live(ctx context.Context, url string, log *slog.Logger) error {
	const connections = 32
	client := &http.Client{
		Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}, Timeout: 10 * time.Second,
	}
	defer client.CloseIdleConnections()
	town := demoTown{api: demoAPI{client: client, url: url}, key: d.Config.AdminKey, pace: d.Pace, seed: d.Seed, log: log}
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

func (d Demo) printLinks(url string, visitors []demoVisitor) {
	fmt.Fprintf(d.Stdout, `The demo is ready, for this machine alone. Nothing in it is real, and nothing is kept.

  console   %s/console/#key=%s
            the board moves by itself; open a dispatch to see who tapped when
`, url, d.Config.AdminKey)
	todo := map[string]string{
		"A": "a phone: about every 20 s an offer comes that only A and B are told of",
		"B": "another phone, in a window beside A's: tap Accept in both, and see who was first",
	}
	for _, v := range visitors {
		fmt.Fprintf(d.Stdout, "  driver %s  %s/driver/#token=%s\n            %s\n", v.letter, url, v.token, todo[v.letter])
	}
	fmt.Fprintln(d.Stdout, "\nCtrl-C ends it.")
}
