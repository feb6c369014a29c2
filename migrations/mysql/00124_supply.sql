-- How many drivers were on duty in a region, and how many dispatches were open there. The job supply writes it.
-- +goose Up
CREATE TABLE IF NOT EXISTS supply (
  at      BIGINT NOT NULL,
  region  VARCHAR(64) NOT NULL,
  on_duty INT NOT NULL,
  open    INT NOT NULL,
  PRIMARY KEY (at, region)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS supply;
