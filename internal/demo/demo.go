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

	"firsttap/internal/config"
	"firsttap/internal/telemetry"
)

const demoAddr = "127.0.0.1:8080"

// Command serves on SQLite in a temporary folder, on a loopback address, with simulated drivers, until ctx ends. It reads only
// FIRSTTAP_LOG from the environment: no setting can lead it to a real service.
func Command(ctx context.Context, args []string, lookup func(string) (string, bool), serve StartService, stdout io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stdout)
	addr := flags.String("addr", "", "host:port of a loopback address; the default is "+demoAddr+", or a free port if that port is in use")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("demo takes flags only, not %q", flags.Arg(0))
	}
	d := Demo{Start: serve, Pace: 1, Seed: mathrand.Uint64(), Stdout: stdout}
	var err error
	if d.Config, err = ReadConfig(lookup); err != nil {
		return err
	}
	if *addr == "" {
		d.Config.Addr, d.AnyPort = demoAddr, true
	} else if d.Config.Addr, err = Loopback(*addr); err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	return d.Run(ctx)
}

// ReadConfig returns the default settings with throw-away secrets, and without a database.
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
		return c, fmt.Errorf("invalid settings:\n%w", err)
	}
	c.DatabaseURL, c.OpsAddr, c.Drain = "", "", 0
	c.AdminKey, c.JWTSecret = rand.Text()+rand.Text(), rand.Text()+rand.Text()
	return c, nil
}

// Loopback returns addr with localhost replaced by 127.0.0.1. It refuses addresses that other machines can reach: the demo's
// links make their reader an admin.
func Loopback(addr string) (string, error) {
	if err := config.CheckAddress(addr); err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if host == "localhost" {
		host = "127.0.0.1" // not what the hosts file says
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%q can be reached from other machines: want 127.0.0.1:PORT, [::1]:PORT or localhost:PORT", addr)
	}
	return net.JoinHostPort(host, port), nil
}

// StartService runs the service in the background until ctx ends, and returns when it listens. The channel receives the error
// that ended it.
type StartService = func(ctx context.Context, c config.Config, log *slog.Logger) (url string, over <-chan error, err error)

// Demo configures a demo.
type Demo struct {
	Start   StartService
	Config  config.Config // without a database
	AnyPort bool          // if the address is in use, take another port
	Pace    int           // how many times faster than real people the simulation is
	Seed    uint64        // of the random sources
	Stdout  io.Writer
}

// Run returns nil when ctx has ended, and an error when the service failed. It removes the temporary folder.
func (d Demo) Run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "firsttap-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d.Config.DatabaseURL = "sqlite://" + filepath.Join(dir, "demo.db")
	log := telemetry.NewLogger(d.Stdout, d.Config.LogLevel)
	// The simulation ends before the service that it calls.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	url, over, err := d.serve(serving, log)
	if err != nil {
		return err
	}
	living, leave := context.WithCancel(ctx)
	defer leave()
	lived := make(chan error, 1)
	go func() { lived <- d.simulate(living, url, log) }()
	select {
	case err := <-lived:
		stop()
		return errors.Join(err, <-over)
	case err := <-over:
		leave()
		return errors.Join(errors.New("the demo's service has ended"), err, <-lived)
	}
}

func (d Demo) serve(ctx context.Context, log *slog.Logger) (url string, over <-chan error, err error) {
	url, over, err = d.Start(ctx, d.Config, log)
	if d.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(d.Config.Addr) // valid: it was in use
		d.Config.Addr = net.JoinHostPort(host, "0")
		return d.Start(ctx, d.Config, log)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", nil, fmt.Errorf("--addr %s: %w", d.Config.Addr, syscall.EADDRINUSE)
	}
	return url, over, err
}

// simulate creates the town, prints the links, and runs the simulation until ctx ends.
func (d Demo) simulate(ctx context.Context, url string, log *slog.Logger) error {
	const connections = 32
	client := &http.Client{
		Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}, Timeout: 10 * time.Second,
	}
	defer client.CloseIdleConnections()
	town := town{api: apiClient{client: client, url: url}, key: d.Config.AdminKey, pace: d.Pace, seed: d.Seed, log: log}
	if err := town.create(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("create the demo's drivers and dispatches: %w", err)
	}
	d.printLinks(url, town.visitors[:])
	town.run(ctx)
	return nil
}

func (d Demo) printLinks(url string, visitors []visitor) {
	fmt.Fprintf(d.Stdout, `The demo is ready. Only this machine can reach it. Its data is simulated, and is deleted at the end.

  console   %s/console/#key=%s
            the board moves by itself; open a dispatch to see who tapped when
`, url, d.Config.AdminKey)
	todo := map[string]string{
		"A": "a phone: about every 20 s an offer arrives that only A and B get",
		"B": "another phone, in a window beside A's: tap Accept in both, and see who was first",
	}
	for _, v := range visitors {
		fmt.Fprintf(d.Stdout, "  driver %s  %s/driver/#token=%s\n            %s\n", v.letter, url, v.token, todo[v.letter])
	}
	fmt.Fprintln(d.Stdout, "\nCtrl-C ends it.")
}
