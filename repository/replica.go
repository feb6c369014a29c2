package repository

import (
	"context"
	"database/sql"
	"errors"
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
	// replicaRead is how long the replica may take for a read once it is up to date. A search of all rows takes seconds.
	replicaRead  = 4 * time.Second
	replicaConns = 8
	// replicaPause is how long a replica that was left is not asked. Then one read tries it.
	replicaPause = 5 * time.Second
)

var (
	errLags         = errors.New("the replica has not applied in time what the primary had committed")
	errNoPositions  = errors.New("the primary has no positions that a replica could wait for: a MySQL needs gtid_mode=ON, a MariaDB log_bin")
	errAllBusy      = errors.New("all connections to the replica are in use")
	errOtherReplica = errors.New("the server is not a replica of the primary: it holds another database")
)

// replica is a server that applies what the primary commits, and answers reads in the primary's place.
//
// Before each read the primary is asked how far it has come, and the replica waits until it has come there too. So a read knows everything
// whose COMMIT was answered before the read began, at any instance. If the replica is not there soon, or fails, the primary answers.
type replica struct {
	pool  *sql.DB
	db    *gorm.DB // on pool
	words replicaWords
	// lag and answer bound the wait for the replica; pause is replicaPause, or less in tests.
	lag, answer, pause time.Duration
	log                *slog.Logger

	places chan struct{} // holds an element for each read of the replica
	asking chan struct{} // holds one element while the primary is asked
	latest *position     // guarded by asking

	mu     sync.Mutex
	leftAt time.Time // of the last try that failed; zero while the replica is in use
	trying bool      // a read tries the replica that was left
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
	return strconv.FormatInt(micros(p.now.Add(time.Since(p.readAt))), 10)
}

// replicaWords holds the SQL that differs between the servers.
type replicaWords struct {
	// position selects the sets of transactions that a server has executed, with a slash between; '' if it keeps none. A transaction is in
	// a set before its COMMIT is answered.
	position string
	// reached is whether a replica has executed a set within some seconds.
	reached string
}

// replicaWordsOf returns the words of a server of that version. A MariaDB that was a replica, and has written nothing since, has a binary
// log that is behind; one whose server_id was changed has a current position that is. So both are waited for: mostly they are the same.
func replicaWordsOf(version string) replicaWords {
	if isMariaDB(version) {
		return replicaWords{"IF(@@GLOBAL.log_bin, CONCAT(@@GLOBAL.gtid_binlog_pos, '/', @@GLOBAL.gtid_current_pos), '')", "MASTER_GTID_WAIT(?, ?) = 0"}
	}
	return replicaWords{"IF(@@GLOBAL.gtid_mode IN ('ON', 'ON_PERMISSIVE'), @@GLOBAL.gtid_executed, '')", "WAIT_FOR_EXECUTED_GTID_SET(?, ?) = 0"}
}

// originSQL is when the database got its first key. A MariaDB counts transactions: it would not notice that they are another database's.
const originSQL = "(SELECT created_at FROM api_keys WHERE id = '" + dispatch.FirstKeyID + "')"

func (w replicaWords) positionSQL(more ...string) string {
	return "SELECT " + strings.Join(append([]string{w.position, originSQL}, more...), ", ")
}

// awaitSQL returns the query for whether a replica reaches p, and its origin.
func (w replicaWords) awaitSQL(p *position, wait time.Duration) (query string, args []any) {
	for _, set := range p.sets {
		args = append(args, set, wait.Seconds())
	}
	return "SELECT " + strings.Join(slices.Repeat([]string{w.reached}, len(p.sets)), " AND ") + ", " + originSQL, args
}

// setsOf splits what replicaWords.position selects.
func setsOf(text string) ([]string, error) {
	sets := slices.DeleteFunc(slices.Compact(strings.Split(text, "/")), func(set string) bool { return set == "" })
	if len(sets) == 0 {
		return nil, errNoPositions
	}
	return sets, nil
}

// openReplica returns the replica at url, without connecting to it: an instance starts without its replica, too.
func (s *Store) openReplica(url, version string) error {
	config, err := MySQLConfig(url)
	if err != nil {
		return err
	}
	config.RejectReadOnly = false // it is read-only
	patience := s.options.Patience
	config.Timeout, config.ReadTimeout = patience/answerShare, max(ioTimeout, 2*patience)
	config.Params[rowLockWait] = seconds(patience)
	limitReads(config, max(replicaRead, patience))
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	r := &replica{
		pool: limitPool(sql.OpenDB(connector), replicaConns), words: replicaWordsOf(version), lag: patience / lagShare, answer: patience / answerShare,
		pause: replicaPause, log: s.log, asking: make(chan struct{}, 1),
		places: make(chan struct{}, replicaConns),
	}
	s.closers = append(s.closers, r.pool.Close)
	r.pool.SetConnMaxLifetime(primary.MaxConnAge) // the address may lead to another replica
	without := gormConfig()
	without.DisableAutomaticPing = true
	r.db, err = gorm.Open(gormmysql.New(gormmysql.Config{Conn: r.pool, SkipInitializeWithVersion: true}), without)
	s.replica = r
	return err
}

// checkReplica tries the replica as a list does, every replicaPause, so that who looks at an instance that is asked for no lists knows too whether
// its replica is away. A read that the primary would answer in its place is none.
func (s *Store) checkReplica(ctx context.Context) {
	r := s.replica
	trial, ok := r.begin()
	if !ok {
		return
	}
	err := s.readReplica(ctx, func(context.Context, *Store) error { return nil })
	if ctx.Err() != nil || errors.Is(err, errNoPosition) || errors.Is(err, errAllBusy) {
		r.giveUp(trial)
		return
	}
	r.end(trial, err)
}

// fromReplica calls read with a Store that reads from the replica if that is up to date, and otherwise, or if the replica fails, from the
// backoffice's pool. read may be called twice, and must not write. Nothing is decided by what it reads.
func (s *Store) fromReplica(ctx context.Context, read func(context.Context, *Store) error) error {
	r := s.replica
	primary := *s
	primary.general = s.backoffice
	if r == nil {
		return read(ctx, &primary)
	}
	if trial, ok := r.begin(); ok {
		panicked := true
		defer func() {
			if panicked {
				r.giveUp(trial)
			}
		}()
		err := s.readReplica(ctx, read)
		panicked = false
		switch {
		case !errors.Is(err, dispatch.ErrUnavailable): // an answer, or the caller's mistake
			r.end(trial, nil)
			r.byReplica.Add(1)
			return err
		case ctx.Err() != nil, errors.Is(err, errNoPosition), errors.Is(err, errAllBusy): // that says nothing about the replica
			r.giveUp(trial)
		default:
			r.end(trial, err)
		}
	}
	r.byPrimary.Add(1)
	return read(ctx, &primary)
}

// readReplica calls read once the replica is up to date. ErrUnavailable; errNoPosition if it is the primary that did not answer, errAllBusy
// if other reads have all connections.
func (s *Store) readReplica(ctx context.Context, read func(context.Context, *Store) error) error {
	r := s.replica
	asking, cancel := context.WithTimeout(ctx, r.answer-r.lag)
	defer cancel()
	at, err := s.position(asking, time.Now())
	if err != nil {
		return unavailable(err)
	}
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-asking.Done():
		return unavailable(errAllBusy)
	}
	waiting, cancel := context.WithTimeout(ctx, r.answer)
	defer cancel()
	// The read has to be on the connection of the wait: the address may lead to several replicas.
	conn, err := r.pool.Conn(waiting)
	if err != nil {
		return unavailable(err)
	}
	defer conn.Close()
	copied := *s
	copied.dialect.text.now = at.clock
	db := s.onReplica(conn, &copied.dialect.text)
	if err := r.await(db.WithContext(waiting), at); err != nil {
		return unavailable(err)
	}
	reading, cancel := context.WithTimeout(ctx, max(replicaRead, s.options.Patience))
	defer cancel()
	copied.replica, copied.general = nil, db
	return read(reading, &copied)
}

// onReplica returns a gorm.DB on the connection, whose statements are such a text.
func (s *Store) onReplica(conn *sql.Conn, t *text) *gorm.DB {
	db := s.replica.db.Session(&gorm.Session{NewDB: true, Context: context.Background()})
	db.Statement.ConnPool = &textPool{conn, "replica", t, s.options.Observer}
	return db
}

// errNoPosition means that the primary did not say how far it has come.
var errNoPosition = errors.New("the primary did not answer")

// position returns how far the primary has come, as it says after the read began. Reads that begin while it is asked share the next answer.
func (s *Store) position(ctx context.Context, began time.Time) (*position, error) {
	r := s.replica
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
	err := s.lookPool.WithContext(ctx).Raw(r.words.positionSQL(s.dialect.now(), s.dialect.readOnly)).Row().Scan(&sets, &p.origin, &now, &readOnly)
	if refused := (*mysql.MySQLError)(nil); err != nil && !errors.As(err, &refused) {
		return nil, errors.Join(errNoPosition, err)
	} else if err != nil {
		return nil, err
	}
	if readOnly {
		return nil, errors.Join(errNoPosition, s.staleLook())
	}
	p.now, p.readAt = fromMicros(now), time.Now()
	if p.sets, err = setsOf(sets); err != nil {
		return nil, err
	}
	r.latest = p
	return p, nil
}

// await returns nil once the replica has applied all that the primary had committed.
func (r *replica) await(db *gorm.DB, p *position) error {
	query, args := r.words.awaitSQL(p, r.lag)
	var reached sql.NullBool
	var origin sql.NullInt64
	switch err := db.Raw(query, args...).Row().Scan(&reached, &origin); {
	case err != nil:
		return err
	case !reached.Bool:
		return errLags
	case origin != p.origin:
		return errOtherReplica
	}
	return nil
}

// begin reports whether a read goes to the replica, and whether it tries a replica that was left. The caller calls end or giveUp.
func (r *replica) begin() (trial, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leftAt.IsZero() {
		return false, true
	}
	if r.trying || time.Since(r.leftAt) < r.pause {
		return false, false
	}
	r.trying = true
	return true, true
}

// giveUp ends a read that says nothing about the replica.
func (r *replica) giveUp(trial bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trying = r.trying && !trial
}

// end ends a read: the replica is left if it failed, and used again if the read was a trial and succeeded.
func (r *replica) end(trial bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trying = r.trying && !trial
	switch left := !r.leftAt.IsZero(); {
	case err == nil && trial:
		r.log.Warn("the read replica is up to date again; it answers lists", "outage", time.Since(r.outageAt))
		r.leftAt = time.Time{}
	case err != nil && !left:
		r.outageAt = time.Now()
		r.log.Warn("the read replica is left; the primary answers lists, and one list tries the replica now and then", "every", r.pause, "error", err)
		fallthrough
	case err != nil && trial:
		r.leftAt = time.Now()
		// A connection to a server that is gone would make the next trial fail, too.
		r.pool.SetMaxIdleConns(0)
		r.pool.SetMaxIdleConns(replicaConns)
	}
}

// ReplicaUse is who has answered the reads that a replica may answer, and whether it is in use.
type ReplicaUse struct {
	ByReplica, ByPrimary uint64
	InUse                bool
}

// Replica returns how the replica is used; false if there is none.
func (s *Store) Replica() (ReplicaUse, bool) {
	r := s.replica
	if r == nil {
		return ReplicaUse{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return ReplicaUse{ByReplica: r.byReplica.Load(), ByPrimary: r.byPrimary.Load(), InUse: r.leftAt.IsZero()}, true
}
