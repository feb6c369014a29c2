package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"firsttap/config"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/schedule"
)

// lockCommand runs "firsttap lock": ls, show NAME or release NAME.
func lockCommand(ctx context.Context, c config.Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	asked := strings.Join(args, " ")
	if len(args) == 0 || (asked != "ls") != (len(args) == 2 && (args[0] == "show" || args[0] == "release")) {
		return errors.New("lock takes ls, show NAME or release NAME")
	}
	if c.JobLock == "memory" {
		return errors.New("FIRSTTAP_JOB_LOCK is memory: only the process that holds such a lock can see it")
	}
	locks, err := openJobLocks(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch args[0] {
	case "ls":
		holders, err := locks.strategy.List(ctx)
		if err == nil {
			printHolders(stdout, holders)
		}
		return err
	case "show":
		h, err := locks.strategy.Show(ctx, args[1])
		if err == nil {
			showHolder(stdout, h)
		}
		return err
	}
	jobs := schedule.HeldBy(schedule.Jobs(nil, 0), args[1])
	if len(jobs) == 0 {
		return locks.release(ctx, args[1], stdout)
	}
	store, err := openStore(ctx, c, repository.Options{Log: log})
	if err != nil {
		return fmt.Errorf("nothing was released: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return locks.releaseJobs(ctx, args[1], jobs, store, stdout)
}

// release takes a lock that is not a job's away from its holder. It raises the fence first: what the holder writes under
// [lock.Fences] is refused before anybody else can have the name.
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
	fmt.Fprintf(stdout, "%s taken from %s; its fence was %d, the next is above %d\n", name, h.Owner, h.Fence, broken.Fence)
	return nil
}

// releaseJobs takes the lock of jobs away from its holder, and their runs from their owners. What fences a job is its run
// in the ledger, not the lock: once releaseJobs has returned, no owner can conclude a run that it had begun before.
//
// The lock goes first. Otherwise its holder could begin another run between the two steps.
func (l *jobLocks) releaseJobs(ctx context.Context, name string, jobs []string, store *repository.Store, stdout io.Writer) error {
	h, err := l.strategy.Show(ctx, name)
	if err != nil {
		return err
	}
	if h.Owner == "" {
		showHolder(stdout, h)
	} else {
		if _, err := l.strategy.Break(ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s taken from %s\n", name, h.Owner)
	}
	runs, err := store.InterruptRuns(ctx, jobs)
	if err != nil {
		return fmt.Errorf("a run under way may still be concluded; repeat the command: %w", err)
	}
	for _, run := range runs {
		fmt.Fprintf(stdout, "run of %s at %s taken from %s\n", run.Job, run.Slot.Format(time.RFC3339Nano), run.Owner)
	}
	return nil
}

func printHolders(stdout io.Writer, holders []lock.Holder) {
	if len(holders) == 0 {
		fmt.Fprintln(stdout, "nothing is held")
		return
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tHOLDER\tLEFT\tFENCE")
	for _, h := range holders {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", h.Name, h.Owner, left(h), h.Fence)
	}
	w.Flush()
}

func showHolder(stdout io.Writer, h lock.Holder) {
	if h.Owner == "" {
		fmt.Fprintf(stdout, "nobody has %s\n", h.Name)
		return
	}
	fmt.Fprintf(stdout, "%s is held by %s\nends in %s unless renewed\nfence %d\n", h.Name, h.Owner, left(h), h.Fence)
}

func left(h lock.Holder) string {
	if h.Remaining == 0 {
		return "the holder's session"
	}
	return h.Remaining.Round(time.Millisecond).String()
}
