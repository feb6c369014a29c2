package dbcheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"firsttap/repository/database"

	driver "github.com/go-sql-driver/mysql"
)

// CheckDurability logs a warning for each setting by which the server may lose a committed claim in a crash or a failover.
func CheckDurability(ctx context.Context, d *database.DB) {
	db, err := d.Serve.SQL()
	if err != nil || d.SQLite() {
		return
	}
	problems, err := durabilityOf(d.Version)(ctx, db)
	for _, p := range problems {
		d.Log.Warn("THE DATABASE MAY LOSE COMMITTED CLAIMS in a crash or failover; correct the setting", "setting", p)
	}
	if err != nil {
		d.Log.Warn("could not check whether the database keeps committed claims in a crash or failover", "error", err)
	}
}

// durabilityOf returns the check of a server of that version. A TiDB has no setting that loses a committed claim: a majority of the servers
// has it before the COMMIT is answered.
func durabilityOf(version string) func(context.Context, *sql.DB) ([]string, error) {
	if database.IsTiDB(version) {
		return func(context.Context, *sql.DB) ([]string, error) { return nil, nil }
	}
	return mysqlDurability
}

func mysqlDurability(ctx context.Context, db *sql.DB) (problems []string, err error) {
	var flush, binlog, syncBinlog int
	err = db.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog").
		Scan(&flush, &binlog, &syncBinlog)
	if err != nil {
		return nil, err
	}
	if flush != 1 {
		problems = append(problems, fmt.Sprintf("innodb_flush_log_at_trx_commit=%d, should be 1", flush))
	}
	if binlog != 1 {
		return problems, nil // without a binary log there are no replicas
	}
	if syncBinlog != 1 {
		problems = append(problems, fmt.Sprintf("sync_binlog=%d, should be 1", syncBinlog))
	}
	lossy, err := lossyReplication(ctx, db)
	return append(problems, lossy...), err
}

// minSemiSyncTimeout is the least time that a server should wait for a replica's acknowledgment. After the timeout the server
// acknowledges commits alone: by then a failover must have taken it out of service.
const minSemiSyncTimeout = time.Hour

// lossyReplication returns the settings by which a replica that becomes the primary may lack an acknowledged claim.
func lossyReplication(ctx context.Context, db *sql.DB) ([]string, error) {
	settings, err := database.ShowValues(ctx, db,
		`SHOW GLOBAL VARIABLES WHERE Variable_name LIKE 'rpl\_semi\_sync\_%'
			OR Variable_name IN ('wsrep_on', 'group_replication_group_name')`)
	if err != nil {
		return nil, err
	}
	status, err := database.ShowValues(ctx, db,
		`SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl\_semi\_sync\_%\_status'
			OR Variable_name IN ('Slaves_connected', 'wsrep_cluster_size')`)
	if err != nil {
		return nil, err
	}
	if nodes, _ := strconv.Atoi(status["wsrep_cluster_size"]); settings["wsrep_on"] == "ON" && nodes > 1 {
		return nil, nil // Galera: the other nodes have a claim before its COMMIT is acknowledged
	}
	if settings["group_replication_group_name"] != "" {
		switch member, err := inReplicationGroup(ctx, db); {
		case err != nil:
			return nil, err
		case member:
			return groupProblems(ctx, db)
		}
	}
	role := "master"
	if _, renamed := settings["rpl_semi_sync_source_enabled"]; renamed {
		role = "source"
	}
	prefix := "rpl_semi_sync_" + role
	if settings[prefix+"_enabled"] == "ON" {
		return semiSyncProblems(prefix, settings, status), nil
	}
	replicas, err := replicas(ctx, db, status)
	if err != nil || replicas == 0 {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%s_enabled is not ON, should be ON: %d replicas are connected, and one that becomes the primary may lack claims",
			prefix, replicas),
	}, nil
}

func semiSyncProblems(prefix string, settings, status map[string]string) (problems []string) {
	if point := settings[prefix+"_wait_point"]; point != "AFTER_SYNC" {
		problems = append(
			problems, fmt.Sprintf("%s_wait_point=%s, should be AFTER_SYNC: clients see a claim before a replica has it", prefix, point),
		)
	}
	if ms, err := strconv.ParseInt(settings[prefix+"_timeout"], 10, 64); err == nil && ms < minSemiSyncTimeout.Milliseconds() {
		problems = append(
			problems,
			fmt.Sprintf("%s_timeout=%d, should be at least %d: after it the server acknowledges claims that no replica has",
				prefix, ms, minSemiSyncTimeout.Milliseconds()),
		)
	}
	for _, alone := range []string{"_wait_no_slave", "_wait_no_replica"} {
		if settings[prefix+alone] == "OFF" {
			problems = append(problems, prefix+alone+"=OFF, should be ON: without a replica the server acknowledges claims at once")
		}
	}
	if name := strings.ToUpper(prefix[:1]) + prefix[1:] + "_status"; status[name] == "OFF" {
		problems = append(problems, name+"=OFF: the server acknowledges claims that no replica has until one has caught up")
	}
	return problems
}

// inReplicationGroup reports whether the server is an online member of its MySQL replication group.
func inReplicationGroup(ctx context.Context, db *sql.DB) (bool, error) {
	var n int
	err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM performance_schema.replication_group_members
		WHERE member_id = @@server_uuid AND member_state = 'ONLINE'`).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("%w (grant it: GRANT SELECT ON performance_schema.replication_group_members)", err)
	}
	return n > 0, nil
}

// groupProblems returns the settings by which a primary of the group answers from old data: a new one before it has applied all commits,
// and an old one that is cut off.
func groupProblems(ctx context.Context, db *sql.DB) (problems []string, err error) {
	var consistency string
	var leaves int
	err = db.QueryRowContext(
		ctx, "SELECT @@GLOBAL.group_replication_consistency, @@GLOBAL.group_replication_unreachable_majority_timeout",
	).Scan(&consistency, &leaves)
	if err != nil {
		return nil, err
	}
	switch consistency {
	case "BEFORE_ON_PRIMARY_FAILOVER", "BEFORE", "BEFORE_AND_AFTER":
	default:
		problems = append(
			problems,
			fmt.Sprintf(
				"group_replication_consistency=%s, should be BEFORE_ON_PRIMARY_FAILOVER: a new primary may answer for a moment without "+
					"the last claims",
				consistency,
			),
		)
	}
	if leaves == 0 {
		problems = append(
			problems,
			"group_replication_unreachable_majority_timeout=0, should be 10: "+
				"a primary that is cut off from the others answers from old data for ever",
		)
	}
	return problems, nil
}

// replicas counts the connected replicas. MariaDB has the number in its status.
func replicas(ctx context.Context, db *sql.DB, status map[string]string) (n int, err error) {
	if connected, known := status["Slaves_connected"]; known {
		return strconv.Atoi(connected)
	}
	const unknownSyntax = 1064 // before MySQL 8.0.22
	rows, err := db.QueryContext(ctx, "SHOW REPLICAS")
	if refused := (*driver.MySQLError)(nil); errors.As(err, &refused) && refused.Number == unknownSyntax {
		rows, err = db.QueryContext(ctx, "SHOW SLAVE HOSTS")
	}
	if err != nil {
		return 0, fmt.Errorf("%w (grant it: GRANT REPLICATION SLAVE ON *.*)", err)
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
