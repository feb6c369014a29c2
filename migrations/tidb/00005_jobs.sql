-- As mysql/00005_jobs.sql, but for outbox; see 00003_notifications.sql.
-- +goose Up
-- What the schedule has to remember of a job between its runs.
CREATE TABLE jobs (
  name           VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  registered_at  BIGINT       NOT NULL,
  slot           BIGINT       NULL, -- the last that was begun
  fence          BIGINT       NOT NULL, -- of the last run
  ended_at       BIGINT       NULL,
  succeeded_at   BIGINT       NULL,
  blocked_at     BIGINT       NULL, -- since when nobody can tell who holds the job's lock
  blocked_by     VARCHAR(64)  NOT NULL,
  blocked_reason VARCHAR(255) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- alive_until is when a run of which nothing is heard is taken over; NULL unless it is RUNNING.
CREATE TABLE job_runs (
  job          VARCHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  slot         BIGINT        NOT NULL,
  status       VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  attempt      INT           NOT NULL,
  owner        VARCHAR(100)  NOT NULL, -- instance/what only this attempt is called
  fence        BIGINT        NOT NULL,
  alive_until  BIGINT        NULL,
  requested_by VARCHAR(40)   NOT NULL,
  began_at     BIGINT        NULL,
  ended_at     BIGINT        NULL,
  result       VARCHAR(255)  NOT NULL,
  error        VARCHAR(1000) NOT NULL,
  skipped      INT           NOT NULL,
  PRIMARY KEY (job, slot),
  KEY ix_job_runs_open (job, status, slot),
  KEY ix_job_runs_slot (slot)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- How many drivers were on duty in a region, and how many dispatches were open there.
CREATE TABLE supply (
  at      BIGINT      NOT NULL,
  region  VARCHAR(64) NOT NULL,
  on_duty INT         NOT NULL,
  open    INT         NOT NULL,
  PRIMARY KEY (at, region)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE INDEX ix_dispatches_expiry ON dispatches (status, expires_at);
CREATE INDEX ix_dispatches_work ON dispatches (status, work_starts_at);

-- +goose Down
DROP INDEX ix_dispatches_work ON dispatches;
DROP INDEX ix_dispatches_expiry ON dispatches;
DROP TABLE supply;
DROP TABLE job_runs;
DROP TABLE jobs;
