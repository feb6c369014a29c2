-- Who is eligible is found in driver_regions: a row for each region of a driver, and one for the region '', which has every driver.
-- driver_counts counts those rows; see repository/driver_index.go, which fills both.
-- +goose Up
CREATE TABLE driver_regions (
  region           TEXT    NOT NULL,
  vehicle_class    TEXT    NOT NULL,
  on_duty          INTEGER NOT NULL,
  driver_id        TEXT    NOT NULL,
  working_height_m REAL    NULL,
  suspended_until  INTEGER NULL,
  PRIMARY KEY (region, vehicle_class, on_duty, driver_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX uq_driver_regions_driver ON driver_regions (driver_id, region);
CREATE INDEX ix_driver_regions_duty ON driver_regions (region, on_duty, driver_id);

-- vehicle_class and working_height_m (-1 for none) are told apart for the region '' only.
CREATE TABLE driver_counts (
  region           TEXT    NOT NULL,
  vehicle_class    TEXT    NOT NULL,
  working_height_m REAL    NOT NULL,
  slot             INTEGER NOT NULL,
  drivers          INTEGER NOT NULL,
  on_duty          INTEGER NOT NULL,
  PRIMARY KEY (region, vehicle_class, working_height_m, slot)
) STRICT, WITHOUT ROWID;

-- indexed_version is the version of the driver that driver_regions has. An earlier version of FirstTap increments version alone.
ALTER TABLE drivers ADD COLUMN indexed_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unindexed INTEGER AS (indexed_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unindexed ON drivers (id) WHERE unindexed = 1;
CREATE INDEX ix_drivers_suspended ON drivers (on_duty, suspended_until);

-- +goose Down
DROP INDEX ix_drivers_suspended;
DROP INDEX ix_drivers_unindexed;
ALTER TABLE drivers DROP COLUMN unindexed;
ALTER TABLE drivers DROP COLUMN indexed_version;
DROP TABLE driver_counts;
DROP TABLE driver_regions;
