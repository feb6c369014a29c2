package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/config"
	"firsttap/lock"
	"firsttap/repository"
)

// lockCommand runs "firsttap lock": ls, show NAME or release NAME.
func lockCommand(ctx context.Context, c config.Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	asked := strings.Join(args, " ")
	if len(args) == 0 || (asked != "ls") != (len(args) == 2 && (args[0] == "show" || args[0] == "release")) {
		return errors.New("usage: firsttap lock ls|show NAME|release NAME")
	}
	if c.JobLock == "memory" {
		return errors.New("FIRSTTAP_JOB_LOCK is memory: only the process that holds such a lock can see it")
	}
	locks, err := openJobLocks(c, lock.NewMetrics(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	var jobs []string
	var store *repository.Store
	if args[0] == "release" {
		jobs = jobsUnder(args[1])
	}
	if len(jobs) > 0 {
		if store, err = openStore(ctx, c, repository.Options{Log: log}); err != nil {
			return fmt.Errorf("nothing was released: %w", err)
		}
		defer func() { err = errors.Join(err, store.Close()) }()
	}
	// The limit begins here, as the opening of the database has one of its own.
	const commandTimeout = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if args[0] == "ls" {
		holders, err := locks.strategy.List(ctx)
		if err == nil {
			printHolders(stdout, holders)
		}
		return err
	}
	if err := locks.mustKnow(ctx, args[1]); err != nil {
		return err
	}
	if args[0] == "show" {
		h, err := locks.strategy.Show(ctx, args[1])
		if err == nil {
			showHolder(stdout, h)
		}
		return err
	}
	if store == nil {
		return locks.release(ctx, args[1], stdout)
	}
	return locks.releaseJobs(ctx, args[1], jobs, store, stdout)
}

// jobsUnder returns the names of the jobs that run under the lock of that name: a job's own, or the leader's.
func jobsUnder(lock string) (names []string) {
	for _, j := range scheduledJobs(nil, config.Config{}) {
		if j.LockName() == lock {
			names = append(names, j.Name)
		}
	}
	return names
}

// mustKnow returns an error if nobody holds the name and no instance would: it is misspelled.
func (l *jobLocks) mustKnow(ctx context.Context, name string) error {
	known := []string{relayName}
	for _, j := range scheduledJobs(nil, config.Config{}) {
		known = append(known, j.LockName())
	}
	if slices.Contains(known, name) {
		return nil
	}
	h, err := l.strategy.Show(ctx, name)
	if err == nil && h.Owner == "" {
		err = fmt.Errorf("there is no lock %q: instances have %s, and nobody holds another of that name", name, strings.Join(known, ", "))
	}
	return err
}

// release breaks a lock that no job uses. It raises the fence before, so that [lock.Fences] rejects the former holder's writes
// before another process can acquire the name, and after, as another process may have acquired it in between.
func (l *jobLocks) release(ctx context.Context, name string, stdout io.Writer) error {
	h, err := l.strategy.Show(ctx, name)
	if err != nil {
		return err
	}
	if h.Owner == "" {
		showHolder(stdout, h)
		return nil
	}
	if h.Fence > 0 {
		if err := l.fences.Raise(ctx, name, h.Fence+1); err != nil {
			return fmt.Errorf("nothing was released: %w", err)
		}
	}
	broken, err := l.strategy.Break(ctx, name)
	if err != nil {
		return err
	}
	if broken.Fence > 0 {
		if err := l.fences.Raise(ctx, name, broken.Fence); err != nil {
			return fmt.Errorf("%s is released, but its former holder may still write; repeat the command: %w", name, err)
		}
	}
	fmt.Fprintf(stdout, "%s released; the holder was %s, and every fence up to %d is rejected\n", name, ownerOf(broken, h), broken.Fence)
	return nil
}

// releaseJobs breaks the lock of jobs and interrupts their runs. The ledger protects a job's writes, not the lock: after
// releaseJobs has returned, no former owner can conclude a run that it had begun.
//
// It breaks the lock first. Otherwise the holder could begin another run between the two steps.
func (l *jobLocks) releaseJobs(ctx context.Context, name string, jobs []string, store *repository.Store, stdout io.Writer) error {
	h, err := l.strategy.Show(ctx, name)
	if err != nil {
		return err
	}
	if h.Owner == "" {
		showHolder(stdout, h)
	} else {
		broken, err := l.strategy.Break(ctx, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s released; the holder was %s\n", name, ownerOf(broken, h))
	}
	runs, err := store.Runs.InterruptRuns(ctx, jobs)
	if err != nil {
		return fmt.Errorf("the lock is released, but a run under way may still write its result; repeat the command: %w", err)
	}
	for _, run := range runs {
		next := "the next instance takes the run over"
		if run.Attempt >= cronjob.MaxAttempts {
			next = "the next instance marks the run FAILED, as it was begun too often"
		}
		fmt.Fprintf(stdout, "run of %s at %s interrupted; its owner was %s; %s\n",
			run.Job, run.Slot.Format(time.RFC3339Nano), run.Owner, next)
	}
	return nil
}

// ownerOf returns the owner of the lock that was broken. Its lease may have ended since it was shown.
func ownerOf(broken, shown lock.Holder) string { return cmp.Or(broken.Owner, shown.Owner) }

func printHolders(stdout io.Writer, holders []lock.Holder) {
	if len(holders) == 0 {
		fmt.Fprintln(stdout, "no lock is held")
		return
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tHOLDER\tREMAINING\tFENCE")
	for _, h := range holders {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", h.Name, h.Owner, left(h), h.Fence)
	}
	w.Flush()
}

func showHolder(stdout io.Writer, h lock.Holder) {
	if h.Owner == "" {
		fmt.Fprintf(stdout, "%s is not held\n", h.Name)
		return
	}
	fmt.Fprintf(stdout, "%s is held by %s\nremaining: %s\nfence: %d\n", h.Name, h.Owner, left(h), h.Fence)
}

func left(h lock.Holder) string {
	if h.Remaining == 0 {
		return "until the holder's session ends"
	}
	return h.Remaining.Round(time.Millisecond).String()
}
