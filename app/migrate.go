package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"firsttap/config"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/service"
)

// openTime is how long the start waits for a database that does not answer.
const openTime = 30 * time.Second

// openStore opens the database. It returns an error if the database can't hold the jobs' locks.
func openStore(ctx context.Context, c config.Config, o repository.Options) (*repository.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	o.Retention, o.Patience = c.Retention, c.Timeouts.Claim/2
	store, err := repository.Open(ctx, c.DatabaseURL, o)
	if err != nil {
		return nil, err
	}
	if why := store.NoSessionLocks(); why != "" && inSessions(c.JobLock) {
		wrong := &config.Problem{Setting: "FIRSTTAP_JOB_LOCK", Err: fmt.Errorf("%s does not work %s; set it to table or redis", c.JobLock, why)}
		return nil, errors.Join(fmt.Errorf("invalid settings:\n%w", wrong), store.Close())
	}
	return store, nil
}

// migrated says how many migrations a start has applied, and whether the database had none before.
type migrated struct {
	steps     int
	fromEmpty bool
}

// prepare brings the schema up to date, or with FIRSTTAP_MIGRATE=off refuses to start on an older one. Then it stores the first
// admin key.
func prepare(ctx context.Context, c config.Config, store *repository.Store, log *slog.Logger) (done migrated, err error) {
	check := func(m *migrations.Migrator) error {
		if c.Migrate {
			n, err := m.Up(ctx)
			done = migrated{steps: n, fromEmpty: n == m.Count()}
			return err
		}
		n, err := m.Pending(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("FIRSTTAP_MIGRATE is off and %d migrations are not applied; run \"firsttap migrate up\" first", n)
		}
		return err
	}
	for {
		err := store.Migrate(check)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, migrations.ErrBusy) && !errors.Is(err, migrations.ErrOvertaken) && !errors.Is(err, migrations.ErrLockLost) {
			return done, err
		}
		log.Warn("another process migrates the database; the start begins again, and waits until that process has finished", "error", err)
	}
	store.PrepareClaims(ctx)
	store.CheckDurability(ctx)
	return done, service.NewKeys(store).StoreFirst(ctx, c.AdminKey)
}

func migrate(ctx context.Context, c config.Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("usage: firsttap migrate up|down|status")
	}
	store, err := openStore(ctx, c, repository.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Migrate(func(m *migrations.Migrator) error {
		switch args[0] {
		case "up":
			n, err := m.Up(ctx)
			fmt.Fprintf(stdout, "%d migrations applied\n", n)
			if err != nil {
				return err
			}
			store.PrepareClaims(ctx)
			if n, err = store.IndexAllDrivers(ctx); n > 0 {
				fmt.Fprintf(stdout, "%d drivers indexed by their regions and words\n", n)
			}
			return err
		case "down":
			took, err := m.Down(ctx)
			if err == nil && !took {
				fmt.Fprintln(stdout, "no migration to revert")
			}
			return err
		case "status":
			return m.Status(ctx, stdout)
		}
		return fmt.Errorf("unknown argument %q; usage: firsttap migrate up|down|status", args[0])
	})
}
