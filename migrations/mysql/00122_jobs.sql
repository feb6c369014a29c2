-- What the schedule has to remember of a job between its runs. The schedule writes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS jobs (
  name           VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  registered_at  BIGINT NOT NULL,
  slot           BIGINT NULL, -- the last that was begun
  fence          BIGINT NOT NULL, -- of the last run
  ended_at       BIGINT NULL,
  succeeded_at   BIGINT NULL,
  blocked_at     BIGINT NULL, -- since when nobody can tell who holds the job's lock
  blocked_by     VARCHAR(64) NOT NULL,
  blocked_reason VARCHAR(255) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS jobs;
