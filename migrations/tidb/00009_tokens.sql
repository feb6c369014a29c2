-- As mysql/00009_tokens.sql, but in two statements: TiDB indexes no column that the same statement adds.
-- +goose Up
-- Tokens of an older generation than their driver's are refused.
ALTER TABLE drivers
  ADD COLUMN token_generation  INT    NOT NULL DEFAULT 0,
  ADD COLUMN tokens_revoked_at BIGINT NULL;
CREATE INDEX ix_drivers_revoked ON drivers (token_generation, tokens_revoked_at);

-- +goose Down
DROP INDEX ix_drivers_revoked ON drivers;
ALTER TABLE drivers
  DROP COLUMN token_generation,
  DROP COLUMN tokens_revoked_at;
