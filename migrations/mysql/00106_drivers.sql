-- Drivers. Admins and the driver API write them. Tokens of an older token_generation are refused. An erased driver's row stays,
-- without what is personal, so that the history has something to point at.
-- +goose Up
CREATE TABLE IF NOT EXISTS drivers (
  id                VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name              VARCHAR(200) NOT NULL,
  phone             VARCHAR(20) NOT NULL,
  regions           JSON NOT NULL,
  vehicle_class     VARCHAR(64) NOT NULL,
  working_height_m  DOUBLE NULL,
  firebase_uid      VARCHAR(128) NULL,
  locale            VARCHAR(35) NOT NULL,
  on_duty           BOOLEAN NOT NULL,
  suspended_until   BIGINT NULL,
  version           INT NOT NULL,
  created_at        BIGINT NOT NULL,
  updated_at        BIGINT NOT NULL,
  token_generation  INT NOT NULL DEFAULT 0,
  tokens_revoked_at BIGINT NULL,
  erased_at         BIGINT NULL,
  erased            BOOLEAN AS (erased_at IS NOT NULL) VIRTUAL, -- an index of NULLs would have every driver
  PRIMARY KEY (id),
  UNIQUE KEY uq_drivers_firebase_uid (firebase_uid),
  KEY ix_drivers_revoked (token_generation, tokens_revoked_at),
  KEY ix_drivers_suspended (on_duty, suspended_until),
  KEY ix_drivers_erased (erased, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS drivers;
