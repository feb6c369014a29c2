-- +goose Up
-- What the schedule has to remember of a job between its runs.
CREATE TABLE jobs (
  name           TEXT    NOT NULL PRIMARY KEY,
  registered_at  INTEGER NOT NULL,
  slot           INTEGER NULL, -- the last that was begun
  fence          INTEGER NOT NULL, -- of the last run
  ended_at       INTEGER NULL,
  succeeded_at   INTEGER NULL,
  blocked_at     INTEGER NULL, -- since when nobody can tell who holds the job's lock
  blocked_by     TEXT    NOT NULL,
  blocked_reason TEXT    NOT NULL
) STRICT;

-- alive_until is when a run of which nothing is heard is taken over; NULL unless it is RUNNING.
CREATE TABLE job_runs (
  job          TEXT    NOT NULL,
  slot         INTEGER NOT NULL,
  status       TEXT    NOT NULL,
  attempt      INTEGER NOT NULL,
  owner        TEXT    NOT NULL, -- instance/what only this attempt is called
  fence        INTEGER NOT NULL,
  alive_until  INTEGER NULL,
  requested_by TEXT    NOT NULL,
  began_at     INTEGER NULL,
  ended_at     INTEGER NULL,
  result       TEXT    NOT NULL,
  error        TEXT    NOT NULL,
  skipped      INTEGER NOT NULL,
  PRIMARY KEY (job, slot)
) STRICT;
CREATE INDEX ix_job_runs_open ON job_runs (job, status, slot);
CREATE INDEX ix_job_runs_slot ON job_runs (slot);

-- How many drivers were on duty in a region, and how many dispatches were open there.
CREATE TABLE supply (
  at      INTEGER NOT NULL,
  region  TEXT    NOT NULL,
  on_duty INTEGER NOT NULL,
  open    INTEGER NOT NULL,
  PRIMARY KEY (at, region)
) STRICT;

CREATE INDEX ix_dispatches_expiry ON dispatches (status, expires_at);
CREATE INDEX ix_dispatches_work ON dispatches (status, work_starts_at);

-- The end of an offer and the reminder of its work are jobs now: a row is an event that is to be told of.
ALTER TABLE outbox RENAME TO outbox_before;
DROP INDEX ix_outbox_due;
CREATE TABLE outbox (
  event_id TEXT    NOT NULL PRIMARY KEY,
  state    INTEGER NOT NULL,
  next_at  INTEGER NOT NULL,
  claim    TEXT    NOT NULL DEFAULT ''
) STRICT;
INSERT INTO outbox SELECT event_id, state, next_at, claim FROM outbox_before WHERE task = 'event';
DROP TABLE outbox_before;
CREATE INDEX ix_outbox_due ON outbox (state, next_at, event_id);

-- +goose Down
ALTER TABLE outbox RENAME TO outbox_before;
DROP INDEX ix_outbox_due;
CREATE TABLE outbox (
  event_id TEXT    NOT NULL,
  task     TEXT    NOT NULL DEFAULT 'event',
  state    INTEGER NOT NULL,
  next_at  INTEGER NOT NULL,
  claim    TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (event_id, task)
) STRICT;
INSERT INTO outbox SELECT event_id, 'event', state, next_at, claim FROM outbox_before;
DROP TABLE outbox_before;
CREATE INDEX ix_outbox_due ON outbox (state, next_at, event_id);
DROP INDEX ix_dispatches_work;
DROP INDEX ix_dispatches_expiry;
DROP TABLE supply;
DROP TABLE job_runs;
DROP TABLE jobs;
