package dispatches

import (
	"context"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/primary"
)

// claimProcedureBody writes a claim in one round trip: the client waits for one answer instead of six. Its result is the time of the
// claim in microseconds, 0 if something that the claim depends on has changed.
//
// Of two claims of one driver that are written at the same time, one fails: one statement reads the number and the hours, so a
// claim whose hours it did not see has the same number. A statement may be killed and leave the session in the middle of the
// transaction; so the transaction before is rolled back first.
//
// The event's identifier begins with the time at which the claim was decided. If that time was estimated and is still to come, nothing
// is written: the dispatch's next event could get a smaller identifier.
//
// The clock of a server may be behind that of the one before it: a claim is not before the dispatch's last change (see
// NotBefore), while its lease counts from the server's clock.
//
// A version names one state only on one server: after a failover that has lost changes it may come again, at another time.
//
// Parameters have the columns' character set: otherwise the server compares each row instead of using the key. What is checked
// first is selected into variables: MySQL locks the rows that the condition of an IF reads.
const claimProcedureBody = `(
  p_decided_at BIGINT, p_dispatch VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin,
  p_round INT, p_version INT, p_updated_at BIGINT, p_starts BIGINT, p_ends BIGINT,
  p_driver VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin, p_driver_version INT,
  p_driver_updated_at BIGINT, p_busy BOOLEAN, p_had_it BOOLEAN,
  p_claim VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin, p_event VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin,
  p_request VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  p_owner VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin, p_lease BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_seq INT;
  DECLARE v_busy, v_had_it BOOLEAN;
  DECLARE v_clock, v_now BIGINT;
  DECLARE v_committing BOOLEAN DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK;
    IF v_committing THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1180, MESSAGE_TEXT = 'the COMMIT of a claim has failed';
    END IF;
    RESIGNAL;
  END;
  ROLLBACK;
  SELECT (SELECT COALESCE(MAX(driver_seq), 0) + 1 FROM claims FORCE INDEX (uq_claims_driver_seq) WHERE driver_id = p_driver),
    EXISTS (SELECT 1 FROM dispatches FORCE INDEX (ix_dispatches_driver) WHERE accepted_by = p_driver
      AND status IN ('ACCEPTED', 'IN_PROGRESS') AND work_ends_at > p_starts AND work_starts_at < p_ends AND id <> p_dispatch),
    EXISTS (SELECT 1 FROM claims FORCE INDEX (uq_claims_round) WHERE dispatch_id = p_dispatch AND driver_id = p_driver AND outcome <> 'WON')
    INTO v_seq, v_busy, v_had_it;
  IF v_busy AND NOT p_busy OR v_had_it AND NOT p_had_it THEN
    SELECT 0;
  ELSE
    SET v_clock = {now}, v_now = GREATEST(v_clock, p_updated_at + 3);
    START TRANSACTION;
    UPDATE dispatches FORCE INDEX (PRIMARY) SET status = 'ACCEPTED', claim_id = p_claim, accepted_by = p_driver,
      accepted_at = v_now, version = p_version + 1, updated_at = v_now
    WHERE id = p_dispatch AND status = 'PENDING' AND round = p_round AND version = p_version AND updated_at = p_updated_at
      AND opens_at <= v_now AND expires_at > v_now AND p_decided_at <= v_now AND NOT {read_only}
      AND EXISTS (SELECT 1 FROM drivers WHERE id = p_driver AND version = p_driver_version
        AND updated_at = p_driver_updated_at AND COALESCE(suspended_until, 0) <= v_now LOCK IN SHARE MODE);
    IF ROW_COUNT() = 1 THEN
      INSERT INTO claims (id, dispatch_id, round, driver_id, driver_seq, outcome, accepted_at)
        VALUES (p_claim, p_dispatch, p_round, p_driver, v_seq, 'WON', v_now);
      INSERT INTO events (id, dispatch_id, type, round, driver_id, actor, reason_code, request_id, at, next_at, claim)
        VALUES (p_event, p_dispatch, 'dispatch.accepted', p_round, p_driver, p_driver, '', p_request, v_now, v_clock + p_lease, p_owner);
      INSERT INTO webhook_events (dispatch_id, event_id) SELECT p_dispatch, p_event FROM webhooks WHERE status = 'ACTIVE' LIMIT 1;
      SET v_committing = TRUE;
      COMMIT;
      SELECT v_now;
    ELSE
      ROLLBACK;
      SELECT 0;
    END IF;
  END IF;
END`

// claimProcedure is the stored procedure that writes a claim, in a database of MySQL or MariaDB. Its name contains a hash of what it
// does, so that instances of different versions each call their own. It is made when it is first called and missing, also
// after the database was restored from a dump without procedures. Safe for concurrent use.
type claimProcedure struct {
	pool         *sql.DB
	name         string
	create, call string
	// unusableUntil is when a procedure that could not be created, called or loaded is tried again, in nanoseconds since 1970.
	unusableUntil atomic.Int64
	observer      database.StatementObserver
	log           *slog.Logger
}

func newClaimProcedure(pool *sql.DB, observer database.StatementObserver, log *slog.Logger) *claimProcedure {
	body := database.MySQLSQL(claimProcedureBody)
	sum := sha256.Sum256([]byte(body))
	name := "firsttap_claim_" + hex.EncodeToString(sum[:6])
	return &claimProcedure{
		pool: pool, name: name,
		create: "CREATE PROCEDURE IF NOT EXISTS " + name + body, call: "CALL " + name + database.Placeholders(1, 17),
		observer: observer, log: log,
	}
}

// usable reports whether the procedure can be called, as far as is known. The nil procedure can't.
func (p *claimProcedure) usable() bool {
	return p != nil && time.Now().UnixNano() >= p.unusableUntil.Load()
}

// callClaim is a commitFunc that writes with the procedure, or in a transaction while that can't be used. The conditions of a transaction
// cover only what was just read.
func (s *Dispatches) callClaim(ctx context.Context, snapshot *claimSnapshot, d *dispatch.Dispatch, events []dispatch.Event) error {
	switch called := len(events) == 1 && events[0].Type == dispatch.EventAccepted && s.procedure.usable(); {
	case !called && !snapshot.read:
		return database.ErrConflict
	case !called:
		return s.transactClaim(opened)(ctx, snapshot, d, events)
	}
	owner, lease := s.journal.Lease()
	sent, decided := time.Now(), int64(0)
	if !snapshot.read {
		decided = database.Micros(snapshot.now)
	}
	at, err := s.procedure.exec(
		ctx, decided, string(d.ID), d.Round, snapshot.dispatch.Version, database.Micros(snapshot.dispatch.UpdatedAt),
		database.Micros(d.WorkStartsAt), database.Micros(d.WorkEndsAt), string(d.Claim.Driver), snapshot.candidate.Version,
		snapshot.driverUpdatedAt, snapshot.candidate.Busy, snapshot.candidate.HadIt, string(d.Claim.ID), string(events[0].ID),
		dispatch.CallerFrom(ctx).Request, owner, lease.Microseconds(),
	)
	switch {
	case err != nil:
		return err
	case at == 0:
		return database.ErrConflict
	}
	claimed := database.Time(at)
	s.lastKnown.learnTime(claimed, sent)
	setClaimTime(d, events, claimed)
	return nil
}

// Error numbers of the server.
const (
	noSuchProcedure = 1305
	duplicateKey    = 1062
)

// notUsable are the errors of a procedure that is missing or can't be loaded, of a user without the privileges to create or to execute it,
// and of servers without procedures. notCommitted are those of the statements before the COMMIT: a duplicate key, a missing privilege on a
// table or column, a missing table, column or index, a lock wait timeout and a deadlock. After any other error the claim may be committed.
var (
	notUsable    = []uint16{noSuchProcedure, 1457, 1548, 1558, 1044, 1064, 1227, 1235, 1370, 1419}
	notCommitted = []uint16{duplicateKey, 1054, 1142, 1143, 1146, 1176, 1205, database.Deadlock}
)

// exec calls the procedure, and creates it if it is missing. ErrUnavailable and database.ErrConflict mean that nothing was written, and
// never will be; so does database.ErrConflict after which the procedure is not usable.
func (p *claimProcedure) exec(ctx context.Context, args ...any) (at int64, err error) {
	for made := false; ; made = true {
		at, err = p.execOnce(ctx, args)
		if made || !database.IsServerError(err, noSuchProcedure) {
			break
		}
		if err = p.make(ctx); err != nil {
			if database.IsServerError(err) {
				p.refuse(err)
				return 0, database.ErrConflict
			}
			return 0, database.Unavailable(err)
		}
		p.log.Warn("the stored procedure for claims was missing and is created again", "procedure", p.name)
	}
	switch {
	case err == nil || errors.Is(err, dispatch.ErrUnavailable):
		return at, err
	case database.IsServerError(err, notUsable...):
		p.refuse(err)
		return 0, database.ErrConflict
	case database.IsServerError(err, duplicateKey, database.Deadlock), errors.Is(err, sqldriver.ErrBadConn):
		return 0, database.ErrConflict
	case database.IsServerError(err, notCommitted...):
		return 0, database.Unavailable(err)
	}
	return 0, fmt.Errorf("%w: claim: %w", dispatch.ErrUnknown, err)
}

// make creates the procedure if it is missing. Another user may have created it for one who may only execute it.
func (p *claimProcedure) make(ctx context.Context) error {
	var there bool
	err := p.pool.QueryRowContext(
		ctx, "SELECT COUNT(*) > 0 FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = ?", p.name,
	).Scan(&there)
	if err == nil && !there {
		_, err = p.pool.ExecContext(ctx, p.create)
	}
	return err
}

const (
	// unusablePause is how long claims are transactions after the server has said that the procedure can't be used.
	unusablePause = 10 * time.Minute
	// failurePause is the same after an error that may be over soon, as that of a server that takes no writes during a failover.
	failurePause = 10 * time.Second
)

// refuse stops the use of the procedure for a while.
func (p *claimProcedure) refuse(err error) {
	pause := failurePause
	if database.IsServerError(err, notUsable...) {
		pause = unusablePause
	}
	now, until := time.Now().UnixNano(), p.unusableUntil.Load()
	if now >= until && p.unusableUntil.CompareAndSwap(until, now+int64(pause)) {
		p.log.Warn("the stored procedure for claims can't be created, called or loaded; claims take more round trips, and it is tried "+
			"again later; the database's user needs the privileges CREATE ROUTINE and EXECUTE",
			"procedure", p.name, "again_in", pause, "error", err)
	}
}

// execOnce calls the procedure. ErrUnavailable means that no connection was to be had; driver.ErrBadConn, that nothing was sent, or
// that the server takes no writes.
func (p *claimProcedure) execOnce(ctx context.Context, args []any) (at int64, err error) {
	if p.observer != nil {
		var answered func(error)
		ctx, answered = p.observer(ctx, database.Statement{Pool: "decide", Operation: "call", Query: p.call})
		defer func() { answered(err) }()
	}
	conn, err := p.pool.Conn(primary.Unchecked(ctx))
	if err != nil {
		return 0, database.Unavailable(err)
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, p.call, args...)
	if err != nil {
		if !database.IsServerError(err, noSuchProcedure) {
			// A statement that was killed, or a fatal error, leaves the session in the middle of the transaction: close it.
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
		return 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return 0, err
		}
		return 0, errors.New("the procedure for claims has returned nothing")
	}
	if err := rows.Scan(&at); err != nil {
		return 0, err
	}
	return at, rows.Close()
}

// PrepareClaims creates the stored procedure for claims if it is missing. A claim does so too, so the server's refusal is only logged.
func (s *Dispatches) PrepareClaims(ctx context.Context) {
	if s.procedure == nil {
		return
	}
	if err := s.procedure.make(ctx); database.IsServerError(err) {
		s.procedure.refuse(err)
	}
}

// ProcedureCall is the statement that calls the stored procedure for claims.
func ProcedureCall() string { return newClaimProcedure(nil, nil, nil).call }
