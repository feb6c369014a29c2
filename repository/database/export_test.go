package database

import (
	"context"
	"database/sql"
	"log/slog"
	"time"
)

// What the tests see of the package.

const (
	DecideConns         = decideConns
	ServeConns          = serveConns
	WorkConns           = workConns
	IOTimeout           = ioTimeout
	ServerGivesUpBefore = serverGivesUpBefore
	ProbeInterval       = probeInterval
	MaxProbeAge         = maxProbeAge
	ProbeRow            = probeRow
	ReplicaPause        = replicaPause
)

var (
	Passes     = passes
	FieldIn    = fieldIn
	UnlessHeld = unlessHeld
	SQLiteDSN  = sqliteDSN
)

type Replica = replica

// Pinged returns a database that only answers pings, by calling that function.
func Pinged(log *slog.Logger, ping func(context.Context) error) *DB {
	return &DB{Log: log, ping: ping, hasTables: func(context.Context) error { return nil }}
}

// SetReplica changes how long the replica is waited for, if that is not 0, and how long it is not asked after a failure.
func (d *DB) SetReplica(lag, answer, pause time.Duration) {
	if d.replica.pause = pause; lag != 0 {
		d.replica.lag, d.replica.answer = lag, answer
	}
}

func (d *DB) ReplicaPool() *sql.DB { return d.replica.pool }

func (d *DB) Position(ctx context.Context, began time.Time) (any, error) {
	return d.position(ctx, began)
}

func NewReplica(pool *sql.DB, log *slog.Logger) *Replica {
	return &replica{pool: pool, pause: replicaPause, log: log}
}

func (r *Replica) Usable() bool { return r.usable() }

func (r *Replica) End(began time.Time, err error) { r.end(began, err) }

func (r *Replica) Left() bool { return !r.leftAt.IsZero() }
