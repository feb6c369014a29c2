-- An index of drivers: who is eligible for a dispatch. It has a row for each region of a driver, and one for the region '', which has
-- every driver. Each transaction that changes a driver writes it. Regions and classes are compared by bytes.
-- +goose Up
CREATE TABLE IF NOT EXISTS driver_regions (
  region           TEXT NOT NULL,
  vehicle_class    TEXT NOT NULL,
  on_duty          INTEGER NOT NULL,
  driver_id        TEXT NOT NULL,
  working_height_m REAL NULL,
  suspended_until  INTEGER NULL,
  PRIMARY KEY (region, vehicle_class, on_duty, driver_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS uq_driver_regions_driver ON driver_regions (driver_id, region);
CREATE INDEX IF NOT EXISTS ix_driver_regions_duty ON driver_regions (region, on_duty, driver_id);

-- +goose Down
DROP TABLE IF EXISTS driver_regions;
