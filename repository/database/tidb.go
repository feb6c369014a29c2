package database

import (
	"strings"

	"firsttap/migrations"
)

// IsTiDB reports whether a version is that of a TiDB.
func IsTiDB(version string) bool { return strings.Contains(version, "TiDB") }

// What TiDB can't do for a setting.
const (
	NoSessionLocksOnTiDB = "with TiDB: it ignores SKIP LOCKED, and does not tell which session has a named lock"
	NoReplicaOfTiDB      = "a TiDB has no replica of MySQL's kind: its servers share the reads"
	UnsetReplica         = "leave " + ReplicaSetting + " unset"
)

// SchemaOf is the dialect of the migrations for a server of that version.
func SchemaOf(version string) migrations.Dialect {
	if IsTiDB(version) {
		return migrations.TiDB
	}
	return migrations.MySQL
}

// Error numbers of TiDB for a transaction that lost against another, and wrote nothing.
const (
	unknownError       = 1105 // also for what has a message only
	forUpdateCantRetry = 8002
	txnRetryable       = 8022
	schemaChanged      = 8028
	writeConflict      = 9007
)

// Retryable reports whether an error means that nothing was written and that another try may succeed.
func Retryable(err error) bool {
	return IsServerError(err, Deadlock, forUpdateCantRetry, txnRetryable, schemaChanged, writeConflict) || overtaken(err)
}

// overtaken reports whether a statement of TiDB gave up a lock because others got it before, again and again.
func overtaken(err error) bool {
	return IsServerError(err, unknownError) && strings.Contains(err.Error(), "pessimistic lock retry limit")
}
