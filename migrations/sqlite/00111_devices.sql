-- Drivers' phones. The driver API writes them. The relay notes what it learns of a push token: suspected_at is since when the push service
-- says that it is dead; quarantined_at is since when no push is sent to it.
-- +goose Up
CREATE TABLE IF NOT EXISTS devices (
  id              TEXT NOT NULL,
  driver_id       TEXT NOT NULL,
  installation_id TEXT NOT NULL,
  platform        TEXT NOT NULL,
  push_token      TEXT NOT NULL,
  app_version     TEXT NOT NULL,
  locale          TEXT NOT NULL,
  quarantined_at  INTEGER NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  suspected_at    INTEGER NULL,
  PRIMARY KEY (id),
  UNIQUE (driver_id, installation_id),
  UNIQUE (push_token)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_devices_quarantined ON devices (quarantined_at);

-- +goose Down
DROP TABLE IF EXISTS devices;
