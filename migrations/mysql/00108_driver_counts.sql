-- How many rows driver_regions has. Each transaction that changes that table writes it. A count is the sum over its slots: drivers who
-- go on duty together rarely wait for each other's row. vehicle_class and working_height_m (-1 for none) are told apart for the region
-- '' only.
-- +goose Up
CREATE TABLE IF NOT EXISTS driver_counts (
  region           VARBINARY(256) NOT NULL,
  vehicle_class    VARBINARY(256) NOT NULL,
  working_height_m DOUBLE NOT NULL,
  slot             TINYINT NOT NULL,
  drivers          INT NOT NULL,
  on_duty          INT NOT NULL,
  PRIMARY KEY (region, vehicle_class, working_height_m, slot)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS driver_counts;
