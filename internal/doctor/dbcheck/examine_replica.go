package dbcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firsttap/internal/doctor"
	"firsttap/repository/database"
	"firsttap/repository/primary"
)

// The checks of ExamineReplica.
const (
	checkReplica        = "replica.connection"
	checkReplicaRole    = "replica.role"
	checkReplicaApplies = "replica.applies"
)

// longLag is how long the doctor waits for a replica to catch up. An instance waits for a tenth of a second.
const longLag = 2 * time.Second

// ExamineReplica checks the replica at url of the database at primaryURL, and changes nothing in either.
func ExamineReplica(ctx context.Context, r *doctor.Report, primaryURL, url string) {
	source := &examination{setting: database.DatabaseSetting}
	replica := &examination{setting: database.ReplicaSetting, conns: database.ReplicaConns}
	defer source.close()
	defer replica.close()
	if !r.Check(ctx, checkReplica, func(ctx context.Context) doctor.Finding { return replica.connect(ctx, url) }) {
		r.Skip(checkReplica, checkReplicaRole, checkReplicaApplies)
		return
	}
	if f := source.connect(ctx, primaryURL); f.Status != doctor.OK {
		r.Skip(checkConnection, checkReplicaRole, checkReplicaApplies)
		return
	}
	if !r.Check(ctx, checkReplicaRole, func(ctx context.Context) doctor.Finding { return replica.replicates(ctx, source) }) {
		r.Skip(checkReplicaRole, checkReplicaApplies)
		return
	}
	r.Check(ctx, checkReplicaApplies, func(ctx context.Context) doctor.Finding { return replica.applies(ctx, source) })
}

// replicates finds out whether the server can be a replica of the primary.
func (e *examination) replicates(ctx context.Context, source *examination) doctor.Finding {
	const seeError = "see the server's error"
	if database.IsTiDB(source.version) {
		return doctor.Failure(database.NoReplicaOfTiDB, database.UnsetReplica)
	}
	if database.IsMariaDB(e.version) != database.IsMariaDB(source.version) {
		return doctor.Failure(fmt.Sprintf("%s can't wait for a position of %s", e.version, source.version),
			"lead "+database.ReplicaSetting+" to a replica of the same kind")
	}
	identity := "SELECT @@server_uuid"
	if database.IsMariaDB(e.version) {
		identity = "SELECT CONCAT(@@hostname, ':', @@port, @@datadir)"
	}
	var own, others string
	if err := e.db.QueryRowContext(ctx, identity).Scan(&own); err != nil {
		return doctor.Failure(err.Error(), seeError)
	}
	if err := source.db.QueryRowContext(ctx, identity).Scan(&others); err != nil {
		return doctor.Failure(err.Error(), seeError)
	}
	if own == others {
		return doctor.Doubt("it is the primary itself, as after a failover: it answers all lists",
			"lead "+database.ReplicaSetting+" to a replica again, or leave it unset")
	}
	var readOnly bool
	if err := e.db.QueryRowContext(ctx, "SELECT "+primary.ReadOnlySQL).Scan(&readOnly); err != nil {
		return doctor.Failure(err.Error(), seeError)
	}
	if !readOnly {
		return doctor.Doubt("takes writes: lists would show what is written there by mistake", "on the replica: SET GLOBAL read_only = ON")
	}
	return doctor.Good("takes no writes")
}

// applies finds out whether, and how soon, the server has applied what the primary has committed by now.
func (e *examination) applies(ctx context.Context, source *examination) doctor.Finding {
	const see = "on the replica: SHOW REPLICA STATUS; until it follows, the primary answers all lists"
	asked := time.Now()
	err := database.AwaitReplica(ctx, source.db, e.db, source.version, longLag)
	switch took := time.Since(asked); {
	case errors.Is(err, database.ErrNoPositions):
		return doctor.Failure(err.Error(), "turn it on, at the primary and the replica; until then the primary answers all lists")
	case errors.Is(err, database.ErrLags):
		return doctor.Failure(fmt.Sprintf("has not applied within %s what the primary had committed", longLag), see)
	case errors.Is(err, database.ErrOtherReplica):
		return doctor.Failure(err.Error(), "lead "+database.ReplicaSetting+" to a replica of "+database.DatabaseSetting)
	case err != nil:
		return doctor.Failure(err.Error(), see)
	case took > database.UsualLag:
		return doctor.Doubt(
			fmt.Sprintf("had applied what the primary had committed after %s, longer than a list waits for it",
				took.Round(time.Millisecond)),
			see,
		)
	default:
		return doctor.Good(fmt.Sprintf("had applied what the primary had committed after %s", took.Round(10*time.Microsecond)))
	}
}
