package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"firsttap/dispatch"
	"firsttap/repository/primary"
)

const (
	// A replica may take a tenth of the patience, 100 ms, to apply what the primary has committed. With a dial a read waits for it for a
	// quarter, 250 ms, and before that 150 ms at most for the primary's answer and a connection.
	lagShare, answerShare = 10, 4
	// UsualLag is how long an instance waits for a replica.
	UsualLag = UsualPatience / lagShare
	// replicaRead is how long the replica may take for a read once it is up to date. A search of all rows takes seconds.
	replicaRead = 4 * time.Second
	// ReplicaConns is the most that an instance opens to the replica.
	ReplicaConns = 8
	// replicaPause is how long a replica that failed is not asked.
	replicaPause = 5 * time.Second
)

// What keeps a replica from answering.
var (
	ErrLags         = errors.New("the replica has not applied in time what the primary had committed")
	ErrNoPositions  = errors.New("the primary has no positions that a replica could wait for: a MySQL needs gtid_mode=ON, a MariaDB log_bin")
	errAllBusy      = errors.New("all connections to the replica are in use")
	errLeft         = errors.New("the replica failed just now")
	ErrOtherReplica = errors.New("the server is not a replica of the primary: it holds another database")
)

// replica is a server that applies what the primary commits, and answers reads in the primary's place.
//
// Before each read the primary is asked how far it has come, and the replica waits until it has come there too. So a read knows everything
// whose COMMIT was answered before the read began, at any instance. If the replica is not there soon, or fails, the primary answers.
type replica struct {
	pool  *sql.DB
	db    *gorm.DB // on pool
	words replicaSQL
	// lag and answer bound the wait for the replica; pause is replicaPause, or less in tests.
	lag, answer, pause time.Duration
	log                *slog.Logger

	slots  chan struct{} // holds an element for each read of the replica
	asking chan struct{} // holds one element while the primary is asked
	latest *position     // guarded by asking

	mu     sync.Mutex
	leftAt time.Time // of the last read that failed; zero while the replica is in use
	// outageAt is when the replica was left first.
	outageAt time.Time

	byReplica, byPrimary atomic.Uint64
}

// position is how far the primary had come.
type position struct {
	sets   []string // of transactions; a replica needs all
	origin sql.NullInt64
	now    time.Time // the primary's
	// sentAt is before the primary was asked, and readAt when it had answered, by this process's clock.
	sentAt, readAt time.Time
}

// clock is the SQL for the primary's time, whatever the replica's clock says: that is the time by which claims are decided.
func (p *position) clock() string {
	return strconv.FormatInt(Micros(p.now.Add(time.Since(p.readAt))), 10)
}

// replicaSQL is the SQL that differs between the servers.
type replicaSQL struct {
	// position selects the sets of transactions that a server has executed, with a slash between; '' if it keeps none. A transaction is in
	// a set before its COMMIT is answered.
	position string
	// reached is whether a replica has executed a set within some seconds.
	reached string
}

// replicaSQLOf returns the words of a server of that version. A MariaDB that was a replica, and has written nothing since, has a binary
// log that is behind; one whose server_id was changed has a current position that is. So both are waited for: mostly they are the same.
func replicaSQLOf(version string) replicaSQL {
	if IsMariaDB(version) {
		return replicaSQL{
			"IF(@@GLOBAL.log_bin, CONCAT(@@GLOBAL.gtid_binlog_pos, '/', @@GLOBAL.gtid_current_pos), '')",
			"MASTER_GTID_WAIT(?, ?) = 0",
		}
	}
	return replicaSQL{
		"IF(@@GLOBAL.gtid_mode IN ('ON', 'ON_PERMISSIVE'), @@GLOBAL.gtid_executed, '')",
		"WAIT_FOR_EXECUTED_GTID_SET(?, ?) = 0",
	}
}

// originSQL is when the database got its first key. A MariaDB counts transactions: it would not notice that they are another database's.
const originSQL = "(SELECT created_at FROM api_keys WHERE id = '" + dispatch.FirstKeyID + "')"

func (w replicaSQL) positionSQL(more ...string) string {
	return "SELECT " + strings.Join(append([]string{w.position, originSQL}, more...), ", ")
}

// awaitSQL returns the query for whether a replica reaches p, and its origin.
func (w replicaSQL) awaitSQL(p *position, wait time.Duration) (query string, args []any) {
	for _, set := range p.sets {
		args = append(args, set, wait.Seconds())
	}
	return "SELECT " + strings.Join(slices.Repeat([]string{w.reached}, len(p.sets)), " AND ") + ", " + originSQL, args
}

// setsOf splits what replicaWordd.position selects.
func setsOf(text string) ([]string, error) {
	sets := slices.DeleteFunc(slices.Compact(strings.Split(text, "/")), func(set string) bool { return set == "" })
	if len(sets) == 0 {
		return nil, ErrNoPositions
	}
	return sets, nil
}

// openReplica returns the replica at url, without connecting to it: an instance starts without its replica, too.
func (d *DB) openReplica(url string) error {
	config, err := MySQLConfig(url)
	if err != nil {
		return err
	}
	config.RejectReadOnly = false // it is read-only
	patience := d.Patience
	config.Timeout, config.ReadTimeout = patience/answerShare, max(ioTimeout, 2*patience)
	config.Params[rowLockWait] = seconds(patience)
	limitReads(config, max(replicaRead, patience))
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	r := &replica{
		pool: LimitPool(
			sql.OpenDB(connector), ReplicaConns,
		), words: replicaSQLOf(d.Version), lag: patience / lagShare, answer: patience / answerShare,
		pause: replicaPause, log: d.Log, asking: make(chan struct{}, 1),
		slots: make(chan struct{}, ReplicaConns),
	}
	d.closers = append(d.closers, r.pool.Close)
	r.pool.SetConnMaxLifetime(primary.MaxConnAge) // the address may lead to another replica
	without := gormConfig()
	without.DisableAutomaticPing = true
	r.db, err = gorm.Open(gormmysql.New(gormmysql.Config{Conn: r.pool, SkipInitializeWithVersion: true}), without)
	d.replica = r
	return err
}

// List calls read with a connection to the replica if that is up to date, and otherwise, or if it fails, to the primary. read may be called
// twice, and must not write. Nothing is decided by what it reads.
func (d *DB) List(ctx context.Context, read func(db Tx) error) error {
	if d.replica != nil {
		if err := d.fromReplica(ctx, read); !errors.Is(err, dispatch.ErrUnavailable) { // an answer, or the caller's mistake
			d.replica.byReplica.Add(1)
			return err
		}
		d.replica.byPrimary.Add(1)
	}
	return read(d.Serve.With(ctx))
}

// fromReplica calls read with a connection to the replica once that is up to date. It leaves the replica if that fails, and uses it again
// if it does not. ErrUnavailable; errLeft if the replica was left less than a pause ago.
func (d *DB) fromReplica(ctx context.Context, read func(db Tx) error) error {
	began, r := time.Now(), d.replica
	if !r.usable() {
		return Unavailable(errLeft)
	}
	err := d.readReplica(ctx, read)
	switch {
	case !errors.Is(err, dispatch.ErrUnavailable):
		r.end(began, nil)
	case ctx.Err() == nil && !errors.Is(err, errNoPosition) && !errors.Is(err, errAllBusy): // these say nothing about the replica
		r.end(began, err)
	}
	return err
}

// readReplica calls read once the replica is up to date. ErrUnavailable; errNoPosition if it is the primary that did not answer, errAllBusy
// if other reads have all connections.
func (d *DB) readReplica(ctx context.Context, read func(db Tx) error) error {
	r := d.replica
	asking, cancel := context.WithTimeout(ctx, r.answer-r.lag)
	defer cancel()
	at, err := d.position(asking, time.Now())
	if err != nil {
		return Unavailable(err)
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-asking.Done():
		return Unavailable(errAllBusy)
	}
	waiting, cancel := context.WithTimeout(ctx, r.answer)
	defer cancel()
	// The read has to be on the connection of the wait: the address may lead to several replicas.
	conn, err := r.pool.Conn(waiting)
	if err != nil {
		return Unavailable(err)
	}
	defer conn.Close()
	words := d.text
	words.now = at.clock
	db := r.db.Session(&gorm.Session{NewDB: true, Context: waiting}) // with a context, it is a copy
	db.Statement.ConnPool = &textPool{conn, "replica", &words, d.observer}
	ask := func(query string, args ...any) *sql.Row { return db.WithContext(waiting).Raw(query, args...).Row() }
	if err := r.words.await(ask, at, r.lag); err != nil {
		return Unavailable(err)
	}
	reading, cancel := context.WithTimeout(ctx, max(replicaRead, d.Patience))
	defer cancel()
	return read(db.WithContext(reading))
}

// errNoPosition means that the primary did not say how far it has come.
var errNoPosition = errors.New("the primary did not answer")

// position returns how far the primary has come, as it says after the read began. Reads that begin while it is asked share the next answer.
func (d *DB) position(ctx context.Context, began time.Time) (*position, error) {
	r := d.replica
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-ctx.Done():
		return nil, errors.Join(errNoPosition, ctx.Err())
	}
	if r.latest != nil && !r.latest.sentAt.Before(began) {
		return r.latest, nil
	}
	p := &position{sentAt: time.Now()}
	var sets string
	var now int64
	var readOnly bool
	err := d.Watch.With(primary.Unchecked(ctx)).Raw(r.words.positionSQL("{now}", "{read_only}")).Row().Scan(&sets, &p.origin, &now, &readOnly)
	if refused := (*mysql.MySQLError)(nil); err != nil && !errors.As(err, &refused) {
		return nil, errors.Join(errNoPosition, err)
	} else if err != nil {
		return nil, err
	}
	if readOnly {
		return nil, errors.Join(errNoPosition, d.Stale())
	}
	p.now, p.readAt = Time(now), time.Now()
	if p.sets, err = setsOf(sets); err != nil {
		return nil, err
	}
	r.latest = p
	return p, nil
}

// await returns nil once a replica, which row asks, has applied all that the primary had committed. ErrLags, ErrOtherReplica.
func (w replicaSQL) await(row func(query string, args ...any) *sql.Row, p *position, wait time.Duration) error {
	query, args := w.awaitSQL(p, wait)
	var reached sql.NullBool
	var origin sql.NullInt64
	switch err := row(query, args...).Scan(&reached, &origin); {
	case err != nil:
		return err
	case !reached.Bool:
		return ErrLags
	case origin != p.origin:
		return ErrOtherReplica
	}
	return nil
}

// AwaitReplica returns nil once the replica has applied all that the primary had committed, both being servers of that version.
// ErrNoPositions, ErrLags, ErrOtherReplica.
func AwaitReplica(ctx context.Context, source, replica *sql.DB, version string, wait time.Duration) error {
	words := replicaSQLOf(version)
	var sets string
	var p position
	err := source.QueryRowContext(ctx, words.positionSQL()).Scan(&sets, &p.origin)
	if err == nil {
		p.sets, err = setsOf(sets)
	}
	if err != nil {
		return fmt.Errorf("the primary: %w", err)
	}
	return words.await(func(query string, args ...any) *sql.Row { return replica.QueryRowContext(ctx, query, args...) }, &p, wait)
}

// usable reports whether a read goes to the replica: also when it was left a pause ago, to try it.
func (r *replica) usable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leftAt.IsZero() || time.Since(r.leftAt) >= r.pause
}

// end ends a read that began then. The replica is left if the read failed, and used again if it succeeded and began after that.
func (r *replica) end(began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := !r.leftAt.IsZero()
	switch {
	case err == nil && left && began.After(r.leftAt):
		r.log.Warn("the read replica is up to date again; it answers lists", "outage", time.Since(r.outageAt))
		r.leftAt = time.Time{}
	case err != nil:
		if r.leftAt = time.Now(); !left {
			r.outageAt = r.leftAt
			r.log.Warn("the read replica is left; the primary answers lists, and the replica is tried now and then", "every", r.pause, "error", err)
		}
		// A connection to a server that is gone would make the next read fail, too.
		r.pool.SetMaxIdleConns(0)
		r.pool.SetMaxIdleConns(ReplicaConns)
	}
}

// ReplicaUse is who has answered the reads that a replica may answer, and whether it is in use.
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
