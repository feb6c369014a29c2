-- What the schedule has to remember of a job between its runs. The schedule writes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS jobs (
  name           TEXT NOT NULL,
  registered_at  INTEGER NOT NULL,
  slot           INTEGER NULL, -- the last that was begun
  fence          INTEGER NOT NULL, -- of the last run
  ended_at       INTEGER NULL,
  succeeded_at   INTEGER NULL,
  blocked_at     INTEGER NULL, -- since when nobody can tell who holds the job's lock
  blocked_by     TEXT NOT NULL,
  blocked_reason TEXT NOT NULL,
  PRIMARY KEY (name)
) STRICT;

-- +goose Down
DROP TABLE IF EXISTS jobs;
