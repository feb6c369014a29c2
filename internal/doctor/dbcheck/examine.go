package dbcheck

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"firsttap/internal/doctor"
	"firsttap/migrations"
	"firsttap/repository/database"
	"firsttap/repository/primary"
)

// The checks of Examine.
const (
	checkConnection = "database.connection"
	checkVersion    = "database.version"
	checkRole       = "database.role"
	checkIsolation  = "database.isolation"
	checkDurability = "database.durability"
	checkClock      = "database.clock"
	checkMigrations = "database.migrations"
	checkSecrets    = "database.secrets"
)

const (
	// A clock that is off by badClock makes tokens and countdowns wrong; one that is synchronized is off by less than poorClock.
	badClock, poorClock = 5 * time.Second, time.Second
	clockReadings       = 3
	// dialLimit leaves a check of a server that does not answer the time to say so.
	dialLimit = 3 * time.Second
)

// Secrets are those of an instance: the hash of its admin key, and the fingerprints of its JWT secrets, "" for none.
type Secrets struct{ AdminKey, JWTName, JWT, PreviousJWT string }

// Examine checks the database at url, and changes nothing in it. atStart says that a start applies missing migrations. The secrets are
// compared with those in force, unless there are none. It returns why locks that a session holds do not work there, "" if they do.
func Examine(ctx context.Context, r *doctor.Report, url string, atStart bool, own Secrets) (noSessionLocks string) {
	if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
		examineSQLite(ctx, r, path, atStart)
		return ""
	}
	e := &examination{setting: database.DatabaseSetting, conns: database.InstanceConns, atStart: atStart}
	defer e.close()
	rest := []string{
		checkVersion, checkRole, checkIsolation, checkDurability, checkClock, checkMigrations, checkPrivileges, checkConnections,
	}
	if !r.Check(ctx, checkConnection, func(ctx context.Context) doctor.Finding { return e.connect(ctx, url) }) {
		r.Skip(checkConnection, rest...)
		return ""
	}
	checks := []func(context.Context) doctor.Finding{
		e.checkVersion, e.role, e.isolation, e.durability, e.clock, e.migrations, e.privileges, e.connections,
	}
	for i, check := range checks {
		r.Check(ctx, rest[i], check)
	}
	if own != (Secrets{}) {
		r.Check(ctx, checkSecrets, func(ctx context.Context) doctor.Finding { return e.secrets(ctx, own) })
	}
	return e.noSessionLocks
}

// examination is a look at a server of MySQL or MariaDB, which need not take writes.
type examination struct {
	setting string // that names it
	conns   int    // that an instance opens to it
	atStart bool
	config  *driver.Config
	version string
	db      *sql.DB // with the sessions of a Store
	// noSessionLocks is why locks that a session holds do not work.
	noSessionLocks string
}

func (e *examination) close() {
	if e.db != nil {
		e.db.Close()
	}
}

// connect opens one connection to find the version, and then a pool.
func (e *examination) connect(ctx context.Context, url string) doctor.Finding {
	var err error
	if e.config, err = database.MySQLConfig(url); err != nil {
		return doctor.Failure(err.Error(), "correct "+e.setting)
	}
	e.config.RejectReadOnly = false
	e.config.Timeout, e.config.ReadTimeout = dialLimit, dialLimit
	at := fmt.Sprintf("%s, database %s, as user %s", e.config.Addr, e.config.DBName, e.config.User)
	if e.version, err = versionAt(ctx, e.config); err != nil {
		return doctor.Failure(fmt.Sprintf("%s: %v", at, err), e.advice(err))
	}
	connector, err := driver.NewConnector(e.config)
	if err != nil {
		return doctor.Failure(err.Error(), "correct "+e.setting)
	}
	e.db = database.LimitPool(sql.OpenDB(connector), 1)
	return doctor.Good(at)
}

// versionAt asks a server for its version, once.
func versionAt(ctx context.Context, config *driver.Config) (version string, err error) {
	connector, err := driver.NewConnector(config)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return version, db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
}

// advice says what to do about the error of a connection.
func (e *examination) advice(err error) string {
	return database.Advice(err, e.config, e.setting, e.conns)
}

// versionNumbers are the first two numbers of a server's version.
var versionNumbers = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)`)

func (e *examination) checkVersion(context.Context) doctor.Finding {
	found, least := "MySQL "+e.version, [2]int{8, 0}
	if database.IsMariaDB(e.version) {
		found, least = e.version, [2]int{10, 6}
	}
	if database.IsTiDB(e.version) {
		e.noSessionLocks = database.NoSessionLocksOnTiDB
		found = e.version // TiDB's version begins with that of a MySQL
	}
	n := versionNumbers.FindStringSubmatch(e.version)
	if n == nil {
		return doctor.Doubt(found+", whose version can't be read", fmt.Sprintf("make sure that it is %d.%d or later", least[0], least[1]))
	}
	major, _ := strconv.Atoi(n[1])
	minor, _ := strconv.Atoi(n[2])
	if major < least[0] || major == least[0] && minor < least[1] {
		return doctor.Failure(found+" has no SKIP LOCKED", fmt.Sprintf("update the server to %d.%d or later", least[0], least[1]))
	}
	return doctor.Good(found)
}

// role finds out whether the server takes writes, as each connection of a Store does.
func (e *examination) role(ctx context.Context) doctor.Finding {
	var readOnly bool
	if err := e.db.QueryRowContext(ctx, "SELECT "+primary.ReadOnlySQL).Scan(&readOnly); err != nil {
		return doctor.Failure(err.Error(), "see the server's error")
	}
	if readOnly {
		return doctor.Failure("the server is read_only: it is a replica, or a failover is not finished",
			"lead FIRSTTAP_DATABASE_URL to the primary; on a server that should be the primary: SET GLOBAL read_only = OFF")
	}
	status, err := database.ShowValues(
		ctx, e.db, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'wsrep_cluster_size', 'wsrep_cluster_status')`,
	)
	if err != nil {
		return doctor.Doubt("takes writes; the replicas can't be seen: "+err.Error(), "")
	}
	if nodes, _ := strconv.Atoi(status["wsrep_cluster_size"]); nodes > 0 {
		e.noSessionLocks = "with a Galera cluster: each node has locks of its own"
		return doctor.Good(fmt.Sprintf("takes writes, in a Galera cluster of %d (%s)", nodes, status["wsrep_cluster_status"]))
	}
	switch n, err := replicas(ctx, e.db, status); {
	case err != nil:
		return doctor.Good("takes writes")
	case n > 0:
		return doctor.Good(fmt.Sprintf("takes writes; connected replicas: %d", n))
	}
	return doctor.Good("takes writes; no replica is connected")
}

// isolation looks at a session like a Store's, and at what the server refuses in such a session.
func (e *examination) isolation(ctx context.Context) doctor.Finding {
	var level string
	if err := e.db.QueryRowContext(ctx, "SELECT /*M! @@tx_isolation *//*!80000 @@transaction_isolation */").Scan(&level); err != nil {
		return doctor.Failure(err.Error(), "see the server's error")
	}
	if level != "READ-COMMITTED" {
		return doctor.Failure("sessions are "+level+", although FirstTap asks for READ-COMMITTED",
			"a proxy drops what clients SET: let it keep sessions apart, or connect to the server itself")
	}
	if err := database.CheckLogFormat(ctx, e.db); err != nil {
		return doctor.Failure(err.Error(), e.advice(err))
	}
	return doctor.Good(level)
}

func (e *examination) durability(ctx context.Context) doctor.Finding {
	const page = `docs/database.md, "A database that fails over", says why`
	problems, err := durabilityOf(e.version)(ctx, e.db)
	switch {
	case len(problems) > 0:
		return doctor.Failure("committed claims may be lost in a crash or failover: "+strings.Join(problems, "; "),
			"correct the settings; "+page)
	case err != nil:
		return doctor.Doubt("could not be checked in full: "+err.Error(), "grant what the message names, and look again; "+page)
	}
	return doctor.Good("a commit outlives a crash and, as far as this server knows, a failover")
}

// clock compares the server's clock, by which it decides, with this machine's. Of several readings the one that took least counts.
func (e *examination) clock(ctx context.Context) doctor.Finding {
	var ahead, unsure time.Duration
	for i := range clockReadings {
		var at int64
		asked := time.Now()
		if err := e.db.QueryRowContext(ctx, "SELECT "+database.MySQLNow).Scan(&at); err != nil {
			return doctor.Failure(err.Error(), "see the server's error")
		}
		half := time.Since(asked) / 2
		if i == 0 || half < unsure {
			ahead, unsure = database.Time(at).Sub(asked.Add(half)), half
		}
	}
	found, off := "the database's clock is that of this machine", ahead.Abs().Round(time.Millisecond)
	switch {
	case off == 0:
	case ahead > 0:
		found = fmt.Sprintf("the database's clock is %s ahead of this machine's", off)
	default:
		found = fmt.Sprintf("the database's clock is %s behind this machine's", off)
	}
	const next = "let both machines follow NTP: chronyc tracking, or timedatectl, shows which one is wrong"
	switch sure := ahead.Abs() - unsure; {
	case sure >= badClock:
		return doctor.Failure(found, next)
	case sure >= poorClock:
		return doctor.Doubt(found, next)
	}
	// ShedLock's own table shows a time by the zone of the session that reads it.
	var zoned bool
	err := e.db.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = 'shedlock' AND data_type = 'timestamp'`).Scan(&zoned)
	if err == nil && zoned {
		return doctor.Doubt(found+"; but the columns of the table shedlock are TIMESTAMP: in the hour that daylight saving time skips "+
			"can be taken, and sessions in other time zones see other ends of locks",
			"ALTER TABLE shedlock MODIFY lock_until DATETIME(6) NOT NULL, "+
				"MODIFY locked_at DATETIME(6) NOT NULL, while no lock is held; ShedLock works with that, too: docs/locks.md")
	}
	return doctor.Good(found)
}

func (e *examination) migrations(ctx context.Context) doctor.Finding {
	m, err := migrations.New(database.SchemaOf(e.version), e.db, slog.New(slog.DiscardHandler))
	if err != nil {
		return doctor.Failure(err.Error(), "")
	}
	return pendingMigrations(ctx, m, e.atStart)
}

func pendingMigrations(ctx context.Context, m *migrations.Migrator, atStart bool) doctor.Finding {
	n, err := m.Pending(ctx)
	switch {
	case err != nil:
		return doctor.Failure(err.Error(), "see the database's error")
	case n == 0:
		return doctor.Good("all are applied")
	case atStart:
		return doctor.Doubt(fmt.Sprintf("not applied: %d", n), "the next start applies them, as FIRSTTAP_MIGRATE is auto")
	}
	return doctor.Failure(fmt.Sprintf("not applied: %d, and FIRSTTAP_MIGRATE is off: no instance starts", n), "run: firsttap migrate up")
}
