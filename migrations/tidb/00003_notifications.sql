-- As mysql/00003_notifications.sql, but that outbox never has the column task, which is in its primary key up to version 5: TiDB changes no
-- primary key.
-- +goose Up
CREATE TABLE devices (
  id              VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  driver_id       VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  installation_id VARCHAR(128)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  platform        VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  push_token      VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  app_version     VARCHAR(64)   NOT NULL,
  locale          VARCHAR(35)   NOT NULL,
  quarantined_at  BIGINT        NULL,
  created_at      BIGINT        NOT NULL,
  updated_at      BIGINT        NOT NULL,
  UNIQUE KEY uq_devices_installation (driver_id, installation_id),
  UNIQUE KEY uq_devices_token (push_token),
  KEY ix_devices_quarantined (quarantined_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE INDEX ix_drivers_eligible ON drivers (vehicle_class, on_duty);

-- claim names who has leased the row, '' if nobody: the lease ends at next_at, when the row is simply due again.
ALTER TABLE outbox ADD COLUMN claim VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';

-- One event to one device (or topic). next_at of one that is due or leased is as in outbox; of one that is done, when
-- it is deleted.
CREATE TABLE notifications (
  id          VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  event_id    VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  device_id   VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  topic       VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  driver_id   VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dispatch_id VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT          NOT NULL,
  type        VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  silent      BOOLEAN      NOT NULL,
  state       TINYINT      NOT NULL,
  next_at     BIGINT       NOT NULL,
  claim       VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  attempts    INT          NOT NULL,
  result      VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason      VARCHAR(255) NOT NULL,
  at          BIGINT       NOT NULL,
  expires_at  BIGINT       NOT NULL,
  created_at  BIGINT       NOT NULL,
  sent_at     BIGINT       NULL,
  UNIQUE KEY uq_notifications_event (event_id, device_id),
  KEY ix_notifications_due (state, next_at, id),
  KEY ix_notifications_dispatch (dispatch_id, created_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What became of an offer with one driver.
CREATE TABLE offers (
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT         NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seen_at     BIGINT      NULL,
  PRIMARY KEY (dispatch_id, round, driver_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- A large audience, which is told together that an offer is over. ended: it is to be unsubscribed.
CREATE TABLE topics (
  name    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  ended   BOOLEAN     NOT NULL,
  state   TINYINT     NOT NULL,
  next_at BIGINT      NOT NULL,
  claim   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  KEY ix_topics_due (state, next_at)
) ENGINE=InnoDB;

CREATE TABLE topic_members (
  topic      VARCHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  device_id  VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  push_token VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subscribed BOOLEAN       NOT NULL,
  PRIMARY KEY (topic, device_id)
) ENGINE=InnoDB;

-- +goose Down
DROP TABLE topic_members;
DROP TABLE topics;
DROP TABLE offers;
DROP TABLE notifications;
ALTER TABLE outbox DROP COLUMN claim;
DROP INDEX ix_drivers_eligible ON drivers;
DROP TABLE devices;
