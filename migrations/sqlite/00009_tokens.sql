-- +goose Up
-- Tokens of an older generation than their driver's are refused.
ALTER TABLE drivers ADD COLUMN token_generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drivers ADD COLUMN tokens_revoked_at INTEGER NULL;
CREATE INDEX ix_drivers_revoked ON drivers (token_generation, tokens_revoked_at, id) WHERE token_generation > 0;

-- +goose Down
DROP INDEX ix_drivers_revoked;
ALTER TABLE drivers DROP COLUMN token_generation;
ALTER TABLE drivers DROP COLUMN tokens_revoked_at;
