-- How many drivers were on duty in a region, and how many dispatches were open there. The job supply writes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS supply (
  at      INTEGER NOT NULL,
  region  TEXT NOT NULL,
  on_duty INTEGER NOT NULL,
  open    INTEGER NOT NULL,
  PRIMARY KEY (at, region)
) STRICT;

-- +goose Down
DROP TABLE IF EXISTS supply;
