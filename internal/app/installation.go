package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

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
	if err != nil {
		log.Warn("not known whether another installation uses this namespace of Redis", "namespace", c.Namespace, "error", err)
		return
	}
	before, err := client.SetArgs(ctx, redisclient.DatabaseKey(c.Namespace), own, redis.SetArgs{Get: true}).Result()
	switch {
	case errors.Is(err, redis.Nil) || before == own:
	case err != nil:
		log.Warn("not known whether another installation uses this namespace of Redis", "namespace", c.Namespace, "error", err)
	default:
		log.Warn("the namespace in Redis was last used with another database; if its instances still run, give each installation a "+
			"FIRSTTAP_NAMESPACE of its own: they share job locks and live events",
			"namespace", c.Namespace, "database", own, "other", before)
	}
}
