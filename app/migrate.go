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
)

// openTime is how long a database may take to be there.
const openTime = 30 * time.Second

func open(ctx context.Context, c config.Config, log *slog.Logger) (*repository.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	return repository.Open(ctx, c.DatabaseURL, log)
}

func migrate(ctx context.Context, c config.Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("migrate takes up, down or status")
	}
	store, err := open(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Migrate(func(m *migrations.Migrator) error {
		switch args[0] {
		case "up":
			n, err := m.Up(ctx)
			fmt.Fprintf(stdout, "%d applied\n", n)
			return err
		case "down":
			took, err := m.Down(ctx)
			if err == nil && !took {
				fmt.Fprintln(stdout, "nothing to take back")
			}
			return err
		case "status":
			return m.Status(ctx, stdout)
		}
		return fmt.Errorf("migrate takes up, down or status, not %s", args[0])
	})
}
