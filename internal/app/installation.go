package app

import (
	"context"
	"log/slog"
	"time"

	"firsttap/internal/config"
	"firsttap/internal/redisclient"
	"firsttap/migrations"
	"firsttap/repository/database"
)

// databaseOf names the database of an installation, as all its instances do: whatever server it is on, and after a failover.
func databaseOf(ctx context.Context, c config.Config) (string, error) {
	pool, dialect, err := database.OpenPool(c.DatabaseURL, 1)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	m, err := migrations.New(dialect, pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	name := c.DatabaseURL // of SQLite it has no password
	if config, err := database.MySQLConfig(name); err == nil {
		name = config.DBName
	}
	began, err := m.Began(ctx)
	return name + " of " + began.Format(time.RFC3339), err
}

// takeNamespace writes into Redis which database the namespace belongs to. It warns if it belonged to another one: two installations
// that share a namespace take each other's job locks, and show each other's live events.
func takeNamespace(ctx context.Context, c config.Config, client redisclient.Client, log *slog.Logger) {
	own, err := databaseOf(ctx, c)
	other := ""
	if err == nil {
		other, err = redisclient.TakeNamespace(ctx, client, redisclient.Installation{Namespace: c.Namespace, Database: own})
	}
	switch {
	case err != nil:
		log.Warn("not known whether another installation uses this namespace of Redis", "namespace", c.Namespace, "error", err)
	case other != "":
		log.Warn("the namespace in Redis was last used with another database; if its instances still run, give each installation a "+
			"FIRSTTAP_NAMESPACE of its own: they share job locks and live events",
			"namespace", c.Namespace, "database", own, "other", other)
	}
}
