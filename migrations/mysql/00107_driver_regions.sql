-- An index of drivers: who is eligible for a dispatch. It has a row for each region of a driver, and one for the region '', which has
-- every driver. Each transaction that changes a driver writes it. Regions and classes are compared by bytes.
-- +goose Up
CREATE TABLE IF NOT EXISTS driver_regions (
  region           VARBINARY(256) NOT NULL,
  vehicle_class    VARBINARY(256) NOT NULL,
  on_duty          BOOLEAN NOT NULL,
  driver_id        VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  working_height_m DOUBLE NULL,
  suspended_until  BIGINT NULL,
  PRIMARY KEY (region, vehicle_class, on_duty, driver_id),
  UNIQUE KEY uq_driver_regions_driver (driver_id, region),
  KEY ix_driver_regions_duty (region, on_duty, driver_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS driver_regions;
