package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"firsttap/config"
	"firsttap/lock"
)

// lockCommand runs "firsttap lock": ls, show NAME or release NAME.
func lockCommand(ctx context.Context, c config.Config, args []string, stdout io.Writer) (err error) {
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
	return locks.release(ctx, args[1], stdout)
}

// release takes name away from its holder. What the holder writes under its fence is refused from before anybody else
// can have the name.
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
	if h.Left == 0 {
		return "the holder's session"
	}
	return h.Left.Round(time.Millisecond).String()
}
