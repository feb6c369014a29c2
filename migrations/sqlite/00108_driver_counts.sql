-- How many rows driver_regions has. Each transaction that changes that table writes it. A count is the sum over its slots: drivers who
-- go on duty together rarely wait for each other's row. vehicle_class and working_height_m (-1 for none) are told apart for the region
-- '' only.
-- +goose Up
CREATE TABLE IF NOT EXISTS driver_counts (
  region           TEXT NOT NULL,
  vehicle_class    TEXT NOT NULL,
  working_height_m REAL NOT NULL,
  slot             INTEGER NOT NULL,
  drivers          INTEGER NOT NULL,
  on_duty          INTEGER NOT NULL,
  PRIMARY KEY (region, vehicle_class, working_height_m, slot)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE IF EXISTS driver_counts;
