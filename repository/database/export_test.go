package database

import (
	"context"
	"database/sql"
	"fmt"
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

// ProbeOf returns a probe of a database that only answers pings, by calling that function.
func ProbeOf(ctx context.Context, log *slog.Logger, ping func(context.Context) error) *Probe {
	p := &Probe{db: &DB{Options: Options{Log: log}}, check: func(ctx context.Context, _ bool) error { return ping(ctx) }}
	p.ask(ctx)
	return p
}

// SetReplica changes how long the replica is waited for, if that is not 0, and how long it is not asked after a failure.
func (d *DB) SetReplica(lag, answer, pause time.Duration) {
	if d.replica.pause = pause; lag != 0 {
		d.replica.lag, d.replica.answer = lag, answer
	}
}

// TryReplicaNow ends the pause after a failure.
func (d *DB) TryReplicaNow() { d.replica.askAfter = time.Time{} }

func (d *DB) ReplicaPool() *sql.DB { return d.replica.pool }

// Replica is one that was never dialed.
type Replica = replica

func NewReplica(pool *sql.DB) *Replica { return &replica{pool: pool, pause: replicaPause} }

// Note tells how a read ended.
func (r *Replica) Note(err error) { r.note(Unavailable(err), slog.New(slog.DiscardHandler)) }

// Asked reports whether a read goes to the replica.
func (r *Replica) Asked() bool { return !r.left() }

// Left reports whether it is not in use.
func (r *Replica) Left() bool { return !r.leftAt.IsZero() }

// KeptTexts returns how many of n statements of about that size are kept expanded.
func KeptTexts(n, size int) int {
	t := newText(mysqlWords)
	for i := range n {
		t.of(fmt.Sprintf("SELECT {now}, %*d", size, i), nil)
	}
	return len(t.expanded)
}

// MaxTexts is how many are kept at most.
const MaxTexts = maxExpanded
