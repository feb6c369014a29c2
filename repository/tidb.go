package repository

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"firsttap/migrations"
)

func isTiDB(version string) bool { return strings.Contains(version, "TiDB") }

// What TiDB can't do for a setting.
const (
	noSessionLocksOnTiDB = "with TiDB: it ignores SKIP LOCKED, and does not tell which session has a named lock"
	noReplicaOfTiDB      = "a TiDB has no replica of MySQL's kind: its servers share the reads"
	unsetReplica         = "leave " + replicaSetting + " unset"
)

// schemaOf is the dialect of the migrations for a server of that version.
func schemaOf(version string) migrations.Dialect {
	if isTiDB(version) {
		return migrations.TiDB
	}
	return migrations.MySQL
}

// durabilityOf returns the check of a server of that version. A TiDB has no setting that loses a committed claim: a majority of the servers has
// it before the COMMIT is answered.
func durabilityOf(version string) func(context.Context, *sql.DB) ([]string, error) {
	if isTiDB(version) {
		return func(context.Context, *sql.DB) ([]string, error) { return nil, nil }
	}
	return mysqlDurability
}

// Error numbers of TiDB for a transaction that lost against another, and wrote nothing.
const (
	unknownError       = 1105 // also for what has a message only
	forUpdateCantRetry = 8002
	txnRetryable       = 8022
	schemaChanged      = 8028
	writeConflict      = 9007
)

// onTiDB changes the dialect to what TiDB does in another way than MySQL. It has no procedures: a claim is a transaction.
func (s *Store) onTiDB() error {
	if s.options.ReplicaURL != "" {
		return errors.New(noReplicaOfTiDB + "; " + unsetReplica)
	}
	d := &s.dialect
	d.noSessionLocks = noSessionLocksOnTiDB
	d.text = tidbText
	return nil
}

// retryable reports whether an error means that nothing was written and that another try may succeed.
func retryable(err error) bool {
	return isServerError(err, deadlock, forUpdateCantRetry, txnRetryable, schemaChanged, writeConflict) || overtaken(err)
}

// overtaken reports whether a statement of TiDB gave up a lock because others got it before, again and again.
func overtaken(err error) bool {
	return isServerError(err, unknownError) && strings.Contains(err.Error(), "pessimistic lock retry limit")
}
