-- Drivers' phones. The driver API writes them. The relay notes what it learns of a push token: suspected_at is since when the push service
-- says that it is dead; quarantined_at is since when no push is sent to it.
-- +goose Up
CREATE TABLE IF NOT EXISTS devices (
  id              VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  driver_id       VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  installation_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  platform        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  push_token      VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  app_version     VARCHAR(64) NOT NULL,
  locale          VARCHAR(35) NOT NULL,
  quarantined_at  BIGINT NULL,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  suspected_at    BIGINT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uq_devices_installation (driver_id, installation_id),
  UNIQUE KEY uq_devices_token (push_token),
  KEY ix_devices_quarantined (quarantined_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS devices;
