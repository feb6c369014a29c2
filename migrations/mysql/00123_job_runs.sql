-- The runs of jobs. The schedule writes them, and an admin who asks for a run. alive_until is when a run of which nothing is heard is
-- taken over; NULL unless it is RUNNING.
-- +goose Up
CREATE TABLE IF NOT EXISTS job_runs (
  job          VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  slot         BIGINT NOT NULL,
  status       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  attempt      INT NOT NULL,
  owner        VARCHAR(100) NOT NULL, -- the instance, a slash, and a name of the attempt
  fence        BIGINT NOT NULL,
  alive_until  BIGINT NULL,
  requested_by VARCHAR(40) NOT NULL,
  began_at     BIGINT NULL,
  ended_at     BIGINT NULL,
  result       VARCHAR(255) NOT NULL,
  error        VARCHAR(1000) NOT NULL,
  PRIMARY KEY (job, slot),
  KEY ix_job_runs_open (job, status, slot),
  KEY ix_job_runs_slot (slot)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS job_runs;
