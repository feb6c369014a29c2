-- Times are microseconds since 1970-01-01 UTC: no session's or server's time zone can shift them.
-- FROM_UNIXTIME(opens_at / 1000000) reads them.

-- +goose Up
CREATE TABLE drivers (
  id               VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  name             VARCHAR(200)  NOT NULL,
  phone            VARCHAR(20)   NOT NULL,
  regions          JSON          NOT NULL,
  vehicle_class    VARCHAR(64)   NOT NULL,
  working_height_m DOUBLE        NULL,
  firebase_uid     VARCHAR(128)  NULL,
  locale           VARCHAR(35)   NOT NULL,
  on_duty          BOOLEAN       NOT NULL,
  suspended_until  BIGINT        NULL,
  version          INT           NOT NULL,
  created_at       BIGINT        NOT NULL,
  updated_at       BIGINT        NOT NULL,
  UNIQUE KEY uq_drivers_firebase_uid (firebase_uid)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE dispatches (
  id                   VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  external_id          VARCHAR(128)  NULL,
  region               VARCHAR(64)   NOT NULL,
  vehicle_class        VARCHAR(64)   NOT NULL,
  min_working_height_m DOUBLE        NULL,
  site_address         VARCHAR(500)  NOT NULL,
  site_lat             DOUBLE        NULL,
  site_lng             DOUBLE        NULL,
  work_starts_at       BIGINT        NOT NULL,
  work_ends_at         BIGINT        NOT NULL,
  fee_amount           BIGINT        NOT NULL,
  fee_currency         CHAR(3)       NOT NULL,
  note                 VARCHAR(2000) NOT NULL,
  opens_at             BIGINT        NOT NULL,
  expires_at           BIGINT        NOT NULL,
  status               VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round                INT           NOT NULL,
  version              INT           NOT NULL,
  claim_id             VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NULL,
  accepted_by          VARCHAR(40)   CHARACTER SET ascii COLLATE ascii_bin NULL,
  accepted_at          BIGINT        NULL,
  created_at           BIGINT        NOT NULL,
  updated_at           BIGINT        NOT NULL,
  UNIQUE KEY uq_dispatches_external_id (external_id),
  KEY ix_dispatches_open (status, region, opens_at),
  KEY ix_dispatches_driver (accepted_by, status, work_ends_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- driver_seq counts a driver's claims. Two claims of one driver that are decided at the same time want the same
-- number, and only one gets it: without that, each would overlook the other's working hours.
CREATE TABLE claims (
  id          VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  dispatch_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT         NOT NULL,
  driver_id   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  driver_seq  INT         NOT NULL,
  outcome     VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  accepted_at BIGINT      NOT NULL,
  ended_at    BIGINT      NULL,
  UNIQUE KEY uq_claims_round (dispatch_id, round),
  UNIQUE KEY uq_claims_driver_seq (driver_id, driver_seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE events (
  id          VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  dispatch_id VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type        VARCHAR(32)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  round       INT          NOT NULL,
  driver_id   VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NULL,
  actor       VARCHAR(40)  NOT NULL,
  reason_code VARCHAR(64)  NOT NULL,
  at          BIGINT       NOT NULL,
  KEY ix_events_dispatch (dispatch_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- A row for each event that somebody must still be told of, due at next_at.
CREATE TABLE outbox (
  event_id VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  state    TINYINT     NOT NULL,
  next_at  BIGINT      NOT NULL,
  KEY ix_outbox_due (state, next_at, event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE api_keys (
  id         VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  name       VARCHAR(200) NOT NULL,
  role       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  hash       CHAR(64)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at BIGINT       NOT NULL,
  revoked_at BIGINT       NULL,
  UNIQUE KEY uq_api_keys_hash (hash)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE api_keys;
DROP TABLE outbox;
DROP TABLE events;
DROP TABLE claims;
DROP TABLE dispatches;
DROP TABLE drivers;
