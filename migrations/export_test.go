package migrations

// NewOf returns a Migrator of another schema than this release's.
var NewOf = newMigrator
