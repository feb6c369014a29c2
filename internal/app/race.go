package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"firsttap/internal/config"
	"firsttap/loadtest"
)

const maxRacers = 1000

// race runs one race: against --url, or the service that listens at FIRSTTAP_ADDR, or else a service of its own in a
// temporary folder.
func race(ctx context.Context, c config.Config, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("race", flag.ContinueOnError)
	flags.SetOutput(stdout)
	url := flags.String("url", "", "the service, or several instances of it with commas between")
	drivers := flags.Int("drivers", 30, "how many drivers tap")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("race takes flags only, not %q", flags.Arg(0))
	}
	if *drivers < 1 || *drivers > maxRacers {
		return fmt.Errorf("--drivers must be from 1 to %d", maxRacers)
	}
	if *url == "" {
		*url = serviceHere(ctx, c)
	}
	if *url == "" {
		return raceAlone(ctx, c, *drivers, stdout)
	}
	if err := c.FindAdminKey(); err != nil {
		return err
	}
	return runRace(ctx, loadtest.Race{URLs: strings.Split(*url, ","), AdminKey: c.AdminKey, Drivers: *drivers}, stdout)
}

func runRace(ctx context.Context, r loadtest.Race, stdout io.Writer) error {
	result, err := r.Run(ctx)
	if err == nil || errors.Is(err, loadtest.ErrNotOneWinner) {
		result.Print(stdout)
	}
	if err == nil {
		fmt.Fprintf(stdout, "\nexactly one winner: %s\n", result.Stored)
	}
	return err
}

// serviceHere returns the URL of the FirstTap that listens at FIRSTTAP_ADDR, "" if none answers.
func serviceHere(ctx context.Context, c config.Config) string {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return ""
	}
	if host == "" {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return url
}

func raceAlone(ctx context.Context, c config.Config, drivers int, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "firsttap-race")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c.DatabaseURL, c.RedisURL, c.OpsAddr = "sqlite://"+filepath.Join(dir, "race.db"), "", ""
	c.ReadURL, c.JobLock = "", "table"
	c.Addr, c.AdminKey, c.JWTSecret, c.Migrate = "127.0.0.1:0", "", "", true
	fmt.Fprintln(stdout, "no FirstTap answers at FIRSTTAP_ADDR; the race runs on a temporary instance")

	serving, stop := context.WithCancel(ctx)
	defer stop()
	url, over, err := ServeInBackground(serving, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err = c.MakeSecrets(); err == nil {
		err = runRace(ctx, loadtest.Race{URLs: []string{url}, AdminKey: c.AdminKey, Drivers: drivers, Leave: true}, stdout)
	}
	stop()
	return errors.Join(err, <-over)
}

// ServeInBackground runs Serve in the background until ctx ends, and returns when it listens. The channel receives the error of
// Serve.
func ServeInBackground(ctx context.Context, c config.Config, log *slog.Logger) (url string, over <-chan error, err error) {
	listening := make(chan string, 1)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, c, log, func(r Ready) { listening <- r.URL }) }()
	select {
	case url = <-listening:
		return url, served, nil
	case err = <-served:
		if err == nil {
			err = ctx.Err()
		}
		return "", nil, err
	}
}
