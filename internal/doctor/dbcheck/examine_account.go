package dbcheck

import (
	"context"
	"fmt"
	"strings"

	"firsttap/internal/doctor"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
)

const (
	checkPrivileges, checkConnections = "database.privileges", "database.connections"
	// usualConns is the most that an instance opens with locks of jobs that no session of its own holds.
	usualConns = database.InstanceConns - database.JobConns + 16
)

// The errors of an account without a privilege on a table, and to call a procedure: the procedure's own statements can get the first ones.
var (
	notPermitted    = []uint16{1044, 1142, 1143, 1227}
	notExecutableBy = []uint16{1370}
)

// privileges tries each kind of statement on each table, without a row, and a call of the procedure that finds no dispatch.
func (e *examination) privileges(ctx context.Context) doctor.Finding {
	rows, err := e.db.QueryContext(ctx, `SELECT t.table_name, MIN(c.column_name) FROM information_schema.tables t
		JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_key = 'PRI'
		WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE'
		AND t.table_name <> 'goose_db_version' GROUP BY t.table_name`)
	if err != nil {
		return doctor.Failure(err.Error(), "see the server's error")
	}
	defer rows.Close()
	var tries [][2]string // the privilege, and a statement that needs it
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return doctor.Failure(err.Error(), "see the server's error")
		}
		tries = append(tries, [2]string{"SELECT", "SELECT 1 FROM " + table + " WHERE FALSE"},
			[2]string{"INSERT", "INSERT INTO " + table + " SELECT * FROM " + table + " WHERE FALSE"},
			[2]string{"UPDATE", "UPDATE " + table + " SET " + column + " = " + column + " WHERE FALSE"},
			[2]string{"DELETE", "DELETE FROM " + table + " WHERE FALSE"})
	}
	if err := rows.Err(); err != nil {
		return doctor.Failure(err.Error(), "see the server's error")
	}
	if !database.IsTiDB(e.version) {
		tries = append(tries, [2]string{"EXECUTE", dispatches.ProcedureCall()})
	}
	var missing []string
	for _, try := range tries {
		if strings.Contains(strings.Join(missing, " "), try[0]) {
			continue
		}
		refusals := notPermitted
		if try[0] == "EXECUTE" {
			refusals = notExecutableBy
		}
		args := make([]any, strings.Count(try[1], "?"))
		if _, err := e.db.ExecContext(ctx, try[1], args...); database.IsServerError(err, refusals...) {
			missing = append(missing, try[0])
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, ", ")
		return doctor.Failure(
			"the user may not "+list+" everywhere in the database", fmt.Sprintf("GRANT %s ON %s.* TO the user", list, e.config.DBName),
		)
	}
	var above int
	err = e.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.user_privileges
		WHERE grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND REPLACE(privilege_type, ' ', '_') IN
		('SUPER', 'READ_ONLY_ADMIN', 'CONNECTION_ADMIN')`).Scan(&above)
	if err == nil && above > 0 {
		return doctor.Doubt("the user may write to a read-only server: a claim in the moment of a failover may be committed there and lost",
			`use a user without SUPER, READ_ONLY ADMIN and CONNECTION_ADMIN: docs/operations.md, "What it needs"`)
	}
	return doctor.Good("the user may read, write and call what an instance needs")
}

// connections compares what the server allows with what instances open.
func (e *examination) connections(ctx context.Context) doctor.Finding {
	var all, ofUser int
	if err := e.db.QueryRowContext(ctx, "SELECT @@GLOBAL.max_connections, @@SESSION.max_user_connections").Scan(&all, &ofUser); err != nil {
		return doctor.Failure(err.Error(), "see the server's error")
	}
	name, most := "max_connections", all
	if ofUser > 0 && (ofUser < all || all == 0) {
		name, most = "max_user_connections", ofUser
	}
	found := fmt.Sprintf("%s is %d; an instance opens up to %d, and twice that while it is replaced", name, most, usualConns)
	next := fmt.Sprintf("raise %s to %d for each instance, and some for replicas and people", name, 2*usualConns)
	switch {
	case most == 0: // TiDB: without a limit
		return doctor.Good("the server allows any number")
	case most < 2*usualConns:
		return doctor.Failure(found, next)
	case most < 4*usualConns:
		return doctor.Doubt(found+": that is enough for one instance", next)
	}
	return doctor.Good(found)
}
