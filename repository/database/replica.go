package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"firsttap/dispatch"
	"firsttap/repository/primary"
)

const (
	// A replica may take a tenth of the patience, 100 ms, to apply what the primary has committed, and a quarter, 250 ms, if it has to be
	// dialed.
	lagShare, answerShare = 10, 4
	// UsualLag is how long an instance waits for a replica.
	UsualLag = UsualPatience / lagShare
	// replicaRead is how long the replica may take for a read once it is up to date. A search of all rows takes seconds.
	replicaRead = 4 * time.Second
	// ReplicaConns is the most that an instance opens to the replica.
	ReplicaConns = 8
	// replicaPause is how long a replica that failed is not asked. That is longer than a read takes in all.
	replicaPause = 5 * time.Second
)

// What keeps a replica from answering.
var (
	ErrLags        = errors.New("the replica has not applied in time what the primary had committed")
	ErrNoPositions = errors.New("the primary has no positions that a replica could wait for: " +
		"a MySQL needs gtid_mode=ON, a MariaDB log_bin")
	ErrOtherReplica = errors.New("the server is not a replica of the primary: it holds another database")
	errNotAsked     = errors.New("the replica failed just now, or all connections to it are in use")
)

// replica is a server that applies what the primary commits, and answers reads in the primary's place.
//
// Before each read the primary is asked how far it has come, and the replica waits until it has come there too. So a read knows everything
// whose COMMIT was answered before the read began, at any instance. If the replica is not there soon, or fails, the primary answers.
type replica struct {
	pool *sql.DB
	text *text
	// lag and answer bound the wait for the replica; pause is replicaPause, or less in tests.
	lag, answer, pause time.Duration

	byReplica, byPrimary atomic.Uint64

	mu       sync.Mutex
	askAfter time.Time // a pause after the last failure
	leftAt   time.Time // of the first failure; zero while the replica is in use
}

// ReplicaUse counts the reads that the replica and the primary have answered, of those that the replica may answer. InUse says whether the
// replica is asked now.
type ReplicaUse struct {
	ByReplica, ByPrimary uint64
	InUse                bool
}

// Replica returns how the replica is used; false if there is none.
func (d *DB) Replica() (ReplicaUse, bool) {
	r := d.replica
	if r == nil {
		return ReplicaUse{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return ReplicaUse{ByReplica: r.byReplica.Load(), ByPrimary: r.byPrimary.Load(), InUse: r.leftAt.IsZero()}, true
}

// openReplica opens the replica at url, without connecting to it: an instance starts without its replica, too.
func (d *DB) openReplica(url string) error {
	if IsTiDB(d.Version) {
		return errors.New(NoReplicaOfTiDB + "; " + UnsetReplica)
	}
	config, err := MySQLConfig(url)
	if err != nil {
		return fmt.Errorf("the replica: %w", err)
	}
	config.RejectReadOnly = false // it is read-only
	config.Timeout, config.ReadTimeout = d.Patience/answerShare, max(ioTimeout, 2*d.Patience)
	config.Params[rowLockWait] = seconds(d.Patience)
	limitReads(config, max(replicaRead, d.Patience))
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return fmt.Errorf("the replica: %w", err)
	}
	pool := LimitPool(sql.OpenDB(connector), ReplicaConns)
	pool.SetConnMaxLifetime(primary.MaxConnAge) // the address may lead to another replica
	d.conns["replica"] = pool
	d.replica = &replica{
		pool: pool, text: newText(replicaWords), lag: d.Patience / lagShare, answer: d.Patience / answerShare, pause: replicaPause,
	}
	return nil
}

// List calls read with a connection to the replica if that is up to date, and otherwise, or if it fails, to the primary. read may be called
// twice, and must not write. Nothing is decided by what it reads.
func (d *DB) List(ctx context.Context, read func(db Tx) error) error {
	if r := d.replica; r != nil {
		if err := d.askReplica(ctx, read); !errors.Is(err, dispatch.ErrUnavailable) { // an answer, or the caller's mistake
			r.byReplica.Add(1)
			return err
		}
		r.byPrimary.Add(1)
	}
	return read(d.Serve.With(ctx))
}

// askReplica calls read with a connection to the replica once that is up to date. A replica that fails is not asked for a pause.
// ErrUnavailable.
func (d *DB) askReplica(ctx context.Context, read func(db Tx) error) error {
	r := d.replica
	if r.left() || r.pool.Stats().InUse == ReplicaConns {
		return Unavailable(errNotAsked)
	}
	at, err := positionOf(primary.Unchecked(ctx), d.Serve.db.Statement.ConnPool, d.Version)
	if at.readOnly {
		return d.Stale()
	}
	if err != nil && !errors.Is(err, ErrNoPositions) { // it says nothing about the replica
		return Unavailable(err)
	}
	if err = Unavailable(err); err == nil {
		err = d.readReplica(ctx, at, read)
	}
	if ctx.Err() == nil && !errors.Is(err, errNotAsked) {
		r.note(err, d.Log)
	}
	return err
}

// readReplica calls read once the replica has come to the position. ErrUnavailable, and read's errors unchanged.
func (d *DB) readReplica(ctx context.Context, at position, read func(db Tx) error) error {
	r := d.replica
	waiting, cancel := context.WithTimeout(ctx, r.answer)
	defer cancel()
	// The read has to be on the connection of the wait: the address may lead to several replicas.
	conn, err := r.pool.Conn(waiting)
	if err != nil && r.pool.Stats().InUse == ReplicaConns {
		return Unavailable(errNotAsked)
	}
	if err != nil {
		return Unavailable(err)
	}
	defer conn.Close()
	// States are told by the primary's time, by which claims are decided, whatever the replica's clock says.
	clock := func() string { return strconv.FormatInt(Micros(at.now.Add(time.Since(at.readAt))), 10) }
	statements := &textPool{conn, "replica", r.text, clock, d.Observer}
	if err := at.await(waiting, statements, d.Version, r.lag); err != nil {
		return Unavailable(err)
	}
	reading, cancel := context.WithTimeout(ctx, max(replicaRead, d.Patience))
	defer cancel()
	db := d.Serve.With(reading)
	db.Statement.ConnPool = statements
	return read(db)
}

// left reports whether the replica failed less than a pause ago.
func (r *replica) left() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.askAfter)
}

// note leaves the replica after ErrUnavailable, and uses it again after a read that did not fail. One that succeeds after the pause has
// begun after the failure.
func (r *replica) note(err error, log *slog.Logger) {
	now, failed := time.Now(), errors.Is(err, dispatch.ErrUnavailable)
	r.mu.Lock()
	defer r.mu.Unlock()
	inUse := r.leftAt.IsZero()
	if failed {
		r.askAfter = now.Add(r.pause)
		// A connection to a server that is gone would make the next read fail, too.
		r.pool.SetMaxIdleConns(0)
		r.pool.SetMaxIdleConns(ReplicaConns)
	}
	switch {
	case failed && inUse:
		r.leftAt = now
		log.Warn("the read replica is left; the primary answers lists, and the replica is tried now and then", "every", r.pause,
			"error", err)
	case !failed && !inUse && !now.Before(r.askAfter):
		log.Warn("the read replica is up to date again; it answers lists", "outage", now.Sub(r.leftAt))
		r.leftAt = time.Time{}
	}
}

// querier is a connection or a pool.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// position is how far a primary had come.
type position struct {
	// reached is a set of transactions, or two with a slash between, of which a replica needs both. A transaction is in it before its
	// COMMIT is answered.
	reached string
	// origin is when the database got its first key. A MariaDB counts transactions: it would not notice that they are another database's.
	origin   sql.NullInt64
	now      time.Time // the primary's
	readAt   time.Time // when it had answered, by this process's clock
	readOnly bool      // it is no primary
}

const originSQL = "(SELECT created_at FROM api_keys WHERE id = '" + dispatch.FirstKeyID + "')"

// positionOf asks a primary of that version how far it has come. ErrNoPositions.
func positionOf(ctx context.Context, primaryDB querier, version string) (p position, err error) {
	reached := "IF(@@GLOBAL.gtid_mode IN ('ON', 'ON_PERMISSIVE'), @@GLOBAL.gtid_executed, '')"
	if IsMariaDB(version) {
		// The two positions are mostly the same. A server that was a replica, and has written nothing since, has a binary log that is
		// behind. A server whose server_id was changed has a current position that is behind.
		reached = "IF(@@GLOBAL.log_bin, CONCAT(@@GLOBAL.gtid_binlog_pos, '/', @@GLOBAL.gtid_current_pos), '')"
	}
	var now int64
	err = primaryDB.QueryRowContext(ctx, "SELECT "+reached+", "+originSQL+", "+MySQLNow+", "+primary.ReadOnlySQL).
		Scan(&p.reached, &p.origin, &now, &p.readOnly)
	if err == nil && strings.Trim(p.reached, "/") == "" {
		err = ErrNoPositions
	}
	p.now, p.readAt = Time(now), time.Now()
	return p, err
}

// await returns nil once a replica of that version has come to p. ErrLags, ErrOtherReplica.
func (p *position) await(ctx context.Context, replicaDB querier, version string, wait time.Duration) error {
	binlog, current, _ := strings.Cut(p.reached, "/")
	query, args := "MASTER_GTID_WAIT(?, ?) = 0 AND MASTER_GTID_WAIT(?, ?) = 0", []any{
		cmp.Or(binlog, current), wait.Seconds(), cmp.Or(current, binlog), wait.Seconds(),
	}
	if !IsMariaDB(version) {
		query, args = "WAIT_FOR_EXECUTED_GTID_SET(?, ?) = 0", args[:2]
	}
	var there sql.NullBool
	var origin sql.NullInt64
	err := replicaDB.QueryRowContext(ctx, "SELECT "+query+", "+originSQL, args...).Scan(&there, &origin)
	switch {
	case err != nil:
		return err
	case !there.Bool:
		return ErrLags
	case origin != p.origin:
		return ErrOtherReplica
	}
	return nil
}

// AwaitReplica returns nil once the replica has applied all that the primary had committed, both being servers of that version.
// ErrNoPositions, ErrLags, ErrOtherReplica.
func AwaitReplica(ctx context.Context, source, replica *sql.DB, version string, wait time.Duration) error {
	p, err := positionOf(ctx, source, version)
	if err != nil {
		return fmt.Errorf("the primary: %w", err)
	}
	return p.await(ctx, replica, version, wait)
}
