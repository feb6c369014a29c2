// Package database connects to MySQL, MariaDB, TiDB or SQLite, and hides where they differ.
//
// It knows no table of the domain's. Its parts:
//
//   - database.go: DB, its pools and options; mysql.go, sqlite.go and tidb.go open the kinds of databases
//   - text.go: SQL with words in braces for what differs between the servers; observe.go expands them, and tells who observes statements
//   - tx.go: transactions, repeated after a collision; errors as ErrUnavailable, ErrUnknown or ErrInvalidValue
//   - replica.go: reads of a replica that is up to date; probe.go: whether the database commits writes; waiting.go: the wait for it
//   - clock.go, values.go and page.go: times, columns and pages of lists
package database
