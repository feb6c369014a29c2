-- The runs of jobs. The schedule writes them, and an admin who asks for a run. alive_until is when a run of which nothing is heard is
-- taken over; NULL unless it is RUNNING.
-- +goose Up
CREATE TABLE IF NOT EXISTS job_runs (
  job          TEXT NOT NULL,
  slot         INTEGER NOT NULL,
  status       TEXT NOT NULL,
  attempt      INTEGER NOT NULL,
  owner        TEXT NOT NULL, -- the instance, a slash, and a name of the attempt
  fence        INTEGER NOT NULL,
  alive_until  INTEGER NULL,
  requested_by TEXT NOT NULL,
  began_at     INTEGER NULL,
  ended_at     INTEGER NULL,
  result       TEXT NOT NULL,
  error        TEXT NOT NULL,
  PRIMARY KEY (job, slot)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_job_runs_open ON job_runs (job, status, slot);
CREATE INDEX IF NOT EXISTS ix_job_runs_slot ON job_runs (slot);

-- +goose Down
DROP TABLE IF EXISTS job_runs;
