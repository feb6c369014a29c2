-- Endpoints of other systems that get events. Admins write them; the courier pauses one that fails for long. replay_from and
-- replay_until are the events between which a replay still goes on, NULL if none does.
-- +goose Up
CREATE TABLE IF NOT EXISTS webhooks (
  id              TEXT NOT NULL,
  url             TEXT NOT NULL,
  events          TEXT NOT NULL,
  description     TEXT NOT NULL,
  status          TEXT NOT NULL,
  pause_reason    TEXT NOT NULL,
  failing_since   INTEGER NULL,
  secret          TEXT NOT NULL,
  previous_secret TEXT NULL,
  previous_until  INTEGER NULL,
  replay_from     TEXT NULL,
  replay_until    TEXT NULL,
  version         INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS webhooks;
