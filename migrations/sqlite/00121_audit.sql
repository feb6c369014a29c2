-- Every change that is no event of a dispatch, by the transaction of the change; also sign-ins, exports, tokens that were issued, and
-- the secrets of a start.
-- +goose Up
CREATE TABLE IF NOT EXISTS audit (
  id         TEXT NOT NULL,
  at         INTEGER NOT NULL,
  actor      TEXT NOT NULL,
  request_id TEXT NOT NULL,
  action     TEXT NOT NULL,
  target     TEXT NOT NULL,
  detail     TEXT NOT NULL,
  PRIMARY KEY (id)
) STRICT;
CREATE INDEX IF NOT EXISTS ix_audit_target ON audit (target, id);
CREATE INDEX IF NOT EXISTS ix_audit_actor ON audit (actor, id);

-- +goose Down
DROP TABLE IF EXISTS audit;
