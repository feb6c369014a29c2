-- Endpoints of other systems that get events. Admins write them; the courier pauses one that fails for long. replay_from and
-- replay_until are the events between which a replay still goes on, NULL if none does.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhooks (
  id              VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  url             VARCHAR(2000) NOT NULL,
  events          VARCHAR(1000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  description     VARCHAR(1000) NOT NULL,
  status          VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  pause_reason    VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  failing_since   BIGINT NULL,
  secret          VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  previous_secret VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NULL,
  previous_until  BIGINT NULL,
  replay_from     VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL,
  replay_until    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL,
  version         INT NOT NULL,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS webhooks;
