-- Every change that is no event of a dispatch, by the transaction of the change; also sign-ins, exports, tokens that were issued, and
-- the secrets of a start.
-- +goose Up
CREATE TABLE IF NOT EXISTS audit (
  id         VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at         BIGINT NOT NULL,
  actor      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_id VARCHAR(128) NOT NULL,
  action     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  target     VARCHAR(64) NOT NULL,
  detail     TEXT NOT NULL,
  PRIMARY KEY (id),
  KEY ix_audit_target (target, id),
  KEY ix_audit_actor (actor, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS audit;
