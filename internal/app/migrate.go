package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"firsttap/internal/doctor/dbcheck"

	"firsttap/dispatch"
	"firsttap/internal/auth"
	"firsttap/internal/config"
	"firsttap/internal/telemetry"
	"firsttap/migrations"
	"firsttap/repository"
	"firsttap/repository/database"
)

// openTime is how long each step of the start waits for a database that can't be used for a reason that passes.
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
		wrong := &config.Problem{
			Setting: "FIRSTTAP_JOB_LOCK", Err: fmt.Errorf("%s does not work %s; set it to table or redis", c.JobLock, why),
		}
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
		err := database.UntilReachable(ctx, openTime, log, func() error { return store.Migrate(check) })
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, migrations.ErrBusy) {
			return done, err
		}
		log.Warn("another process migrates the database; the start waits until it has finished", "error", err)
	}
	store.Dispatches.PrepareClaims(ctx)
	dbcheck.CheckDurability(ctx, store.DB)
	return done, database.UntilReachable(ctx, openTime, log, func() error { return useSecrets(ctx, c, store, log) })
}

// jwtSecret is the setting's name, and that of its fingerprints in the trail.
const jwtSecret = "FIRSTTAP_JWT_SECRET"

// useSecrets puts this instance's secrets in force, unless they were replaced before: then this server's settings were forgotten.
func useSecrets(ctx context.Context, c config.Config, store *repository.Store, log *slog.Logger) error {
	const next = `give this server what the others have; docs/callers.md, "Replacing the first admin key", says how`
	err := store.Keys.EnsureKey(ctx, auth.FirstKey(c.AdminKey))
	if errors.Is(err, dispatch.ErrOldSecret) {
		log.Warn("FIRSTTAP_ADMIN_KEY of this instance was replaced or revoked before: it opens nothing, and the key in force stays",
			"fingerprint", auth.Fingerprint(c.AdminKey), "next", next)
	} else if err != nil {
		return err
	}
	own := auth.Fingerprint(c.JWTSecret)
	replaced, err := store.Keys.UseSecret(ctx, jwtSecret, own)
	switch {
	case errors.Is(err, dispatch.ErrOldSecret):
		log.Warn("FIRSTTAP_JWT_SECRET of this instance was replaced before: it and the other instances refuse each other's tokens",
			"fingerprint", own, "next", next)
	case err != nil:
		return err
	case replaced != "" && (c.PreviousJWTSecret == "" || replaced != auth.Fingerprint(c.PreviousJWTSecret)):
		log.Warn("FIRSTTAP_JWT_SECRET differs from the one in force until now, and FIRSTTAP_JWT_SECRET_PREVIOUS is not that one: tokens "+
			"signed before are refused, and instances with the other secret refuse this one's tokens",
			"fingerprint", own, "before", replaced, "next", next)
	}
	return nil
}

const migrateUsage = "usage: firsttap migrate up|down|status [--yes]"

func migrate(ctx context.Context, c config.Config, log *slog.Logger, args []string, stdout io.Writer) (err error) {
	asked := strings.Join(args, " ")
	if !slices.Contains([]string{"up", "down", "down --yes", "status"}, asked) {
		return errors.New(migrateUsage)
	}
	store, err := openStore(ctx, c, repository.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Migrate(func(m *migrations.Migrator) error {
		switch asked {
		case "up":
			n, err := m.Up(ctx)
			fmt.Fprintf(stdout, "%d migrations applied\n", n)
			if err != nil {
				return err
			}
			store.Dispatches.PrepareClaims(ctx)
			return nil
		case "status":
			return m.Status(ctx, stdout)
		}
		return migrateDown(ctx, m, asked == "down --yes", stdout)
	})
}

// migrateDown says what the newest migration's way back deletes, and asks unless yes is true.
func migrateDown(ctx context.Context, m *migrations.Migrator, yes bool, stdout io.Writer) error {
	name, down, err := m.Newest(ctx)
	if err != nil {
		return err
	}
	if name == "" {
		fmt.Fprintln(stdout, "no migration to revert")
		return nil
	}
	fmt.Fprintf(stdout, "down reverts %s; what these statements drop or delete is lost:\n\n%s\n\n", name, down)
	if !yes {
		if !telemetry.IsTerminal(os.Stdin) {
			return errors.New("nothing was reverted: repeat the command with --yes, once there is a backup")
		}
		fmt.Fprint(stdout, "type yes to go on: ")
		if answer, _ := bufio.NewReader(os.Stdin).ReadString('\n'); strings.TrimSpace(answer) != "yes" {
			return errors.New("nothing was reverted")
		}
	}
	_, err = m.Down(ctx)
	return err
}
