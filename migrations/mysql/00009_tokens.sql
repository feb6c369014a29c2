-- +goose Up
-- Tokens of an older generation than their driver's are refused. One statement, so that it is there whole or not at all.
ALTER TABLE drivers
  ADD COLUMN token_generation  INT    NOT NULL DEFAULT 0,
  ADD COLUMN tokens_revoked_at BIGINT NULL,
  ADD KEY ix_drivers_revoked (token_generation, tokens_revoked_at);

-- +goose Down
ALTER TABLE drivers
  DROP KEY ix_drivers_revoked,
  DROP COLUMN token_generation,
  DROP COLUMN tokens_revoked_at;
