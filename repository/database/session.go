package database

import (
	"fmt"
	"strconv"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// Variables that some pools set to values of their own. A server executes only the comments that are meant for it, so that one statement
// fits all: /*M! is for MariaDB, /*!80000 for MySQL and TiDB, /*T! for TiDB.
const (
	isolation     = "/*M! tx_isolation *//*!80000 transaction_isolation */"
	readOnlyTx    = "/*M! tx_read_only *//*!80000 transaction_read_only */"
	readLimit     = "/*M! max_statement_time *//*!80000 max_execution_time */"
	rowLockWait   = "innodb_lock_wait_timeout"
	tableLockWait = "lock_wait_timeout"
	// The server ends a session that is silent for this long, with its transaction: a frozen or lost instance does not hold a
	// row for the default of eight hours.
	sessionTimeout = "wait_timeout"
	sessionSeconds = 60
)

// sessionParams are what each connection of each pool sets, those of the locks and of the migrator too, in the one statement with which
// it begins: whatever changes what a statement does, stores or answers. A server's configuration gives other values, or its init_connect.
// A user needs no privilege for any of them.
func sessionParams() map[string]string {
	const most = "18446744073709551615"
	return map[string]string{
		// A server may ignore the character set that a client connects with: it would store question marks.
		"character_set_client": "utf8mb4", "character_set_results": "utf8mb4", "collation_connection": "utf8mb4_general_ci",
		"sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
		// A COMMIT ends the transaction, and neither begins another nor ends the session.
		"autocommit": "1", "completion_type": "0", readOnlyTx: "0",
		// Under REPEATABLE READ a transaction goes on reading PENDING after another has claimed the dispatch, and gap locks make
		// unrelated inserts wait.
		isolation:   "'READ-COMMITTED'",
		rowLockWait: seconds(UsualPatience), tableLockWait: seconds(ioTimeout), readLimit: "0",
		sessionTimeout: strconv.Itoa(sessionSeconds), "net_write_timeout": "60", "net_read_timeout": "30",
		"time_zone": "'+00:00'", // goose's times
		// Without these checks a second claim of a round may be stored.
		"unique_checks": "1", "foreign_key_checks": "1",
		// Results are whole, and sorted by whole values.
		"sql_safe_updates": "0", "sql_select_limit": most, "max_join_size": most, "sql_big_selects": "1", "max_sort_length": "1024",
		"default_storage_engine": "InnoDB",  // goose names no engine for its table
		"lc_messages":            "'en_US'", // the log is in English
		// Locks are held by transactions that are idle.
		"/*M! idle_transaction_timeout = 0, idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, */" +
			// TiDB locks rows when they are written, and refuses a duplicate key then, as MySQL does; a cluster that began as an early
			// version may do either at the COMMIT.
			"/*T! tidb_txn_mode = 'pessimistic', tidb_constraint_check_in_place_pessimistic = 1, */ sql_auto_is_null": "0",
	}
}

// limitReads makes the server give up a read after that time; MariaDB any statement.
func limitReads(config *driver.Config, d time.Duration) {
	config.Params[readLimit] = fmt.Sprintf("%d /*M! / 1000 */", d.Milliseconds())
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
