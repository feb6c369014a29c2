-- Who is eligible is found in driver_regions: a row for each region of a driver, and one for the region '', which has every driver. What is
-- compared is compared by bytes. driver_counts counts those rows; see repository/driver_index.go, which fills both.
-- +goose Up
CREATE TABLE driver_regions (
  region           VARBINARY(256) NOT NULL,
  vehicle_class    VARBINARY(256) NOT NULL,
  on_duty          BOOLEAN        NOT NULL,
  driver_id        VARCHAR(40)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  working_height_m DOUBLE         NULL,
  suspended_until  BIGINT         NULL,
  PRIMARY KEY (region, vehicle_class, on_duty, driver_id),
  UNIQUE KEY uq_driver_regions_driver (driver_id, region),
  KEY ix_driver_regions_duty (region, on_duty, driver_id)
) ENGINE=InnoDB;

-- A count is the sum over its slots: drivers who go on duty together rarely wait for each other's row. vehicle_class and
-- working_height_m (-1 for none) are told apart for the region '' only.
CREATE TABLE driver_counts (
  region           VARBINARY(256) NOT NULL,
  vehicle_class    VARBINARY(256) NOT NULL,
  working_height_m DOUBLE         NOT NULL,
  slot             TINYINT        NOT NULL,
  drivers          INT            NOT NULL,
  on_duty          INT            NOT NULL,
  PRIMARY KEY (region, vehicle_class, working_height_m, slot)
) ENGINE=InnoDB;

-- indexed_version is the version of the driver that driver_regions has. An earlier version of FirstTap increments version alone.
ALTER TABLE drivers ADD COLUMN indexed_version INT NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN unindexed BOOLEAN AS (indexed_version <> version) VIRTUAL;
CREATE INDEX ix_drivers_unindexed ON drivers (unindexed);
CREATE INDEX ix_drivers_suspended ON drivers (on_duty, suspended_until);

-- +goose Down
DROP INDEX ix_drivers_suspended ON drivers;
DROP INDEX ix_drivers_unindexed ON drivers;
ALTER TABLE drivers DROP COLUMN unindexed;
ALTER TABLE drivers DROP COLUMN indexed_version;
DROP TABLE driver_counts;
DROP TABLE driver_regions;
