// Package lock provides distributed locks: named leases, each held by one process at a time.
//
// A [Locker] holds names by a [Strategy]: [Redis] on one server, Sentinel or Cluster; a [Quorum] of independent Redis
// servers; a [Table] that is compatible with ShedLock; [Named] locks and [Rows] of MySQL and MariaDB; [Memory] within a
// process. A [Hold] says how long a name is held: [Fixed], [Renewed], [Expected], [Between]. [Locker.Do] runs work under a
// lease, [Locker.Acquire] returns one, and [Locker.Leader] elects a leader.
//
// # What is promised
//
//   - One holder. A name has at most one lease at a time, by the server's clock. This process's clock may be wrong, as
//     long as it runs at about the right rate.
//   - Notice before the end. The context of the work ends before another process can acquire the name: a tenth of the TTL
//     before the server's deadline, counted from when the last answered request was sent. The context's cause is
//     [ErrExpired], [ErrStolen], [ErrUnreachable], [ErrMaxHold] or [ErrStalled], each of which is [ErrLost].
//   - Three kinds of error. Held ([HeldError], with the owner and the remaining time), unavailable and lost are different
//     errors. If the server does not answer, the error is never "held".
//   - An identity for each acquisition. Only its owner extends or releases a lease. Both may be repeated after a lost reply.
//   - No orphans. If a failed acquisition may have succeeded on the server, it is released as soon as the server can be
//     reached. A release works after the caller's context has ended.
//   - A fence. Each lease has a number that is larger than that of every earlier lease of the name, also after a restart or
//     a flush of the server, unless the server's clock is behind: then [Fences.Enforce] refuses until it has caught up.
//     It rejects a transaction whose lease is no longer the newest.
//   - Bounds. If a holder dies, its name is free within the TTL; with [Named] and [Rows], if its machine vanishes without
//     closing the connection, within two seconds more. If a holder hangs, its name is free within [Hold.AtMost] or
//     [Hold.Heartbeat] and a TTL; a [Leader] has neither. Every request has a timeout. A refused attempt costs one command,
//     two with [Rows], and two for each server of a [Quorum]. Of the goroutines of one process that wait for the same name, one
//     at a time asks the server.
//
// # What is not promised
//
// A lease is advisory. A process that is suspended, or that ignores its context, can still write after its lease has
// ended. A server can lose a lease and grant the name again: after a flush, an eviction, a failover to a replica that had
// not received the lease, or when an operator breaks the lease; with [Named] and [Rows], also when a connection breaks. The
// holder learns of it at its next renewal. Where that could do harm, let the database check the fence or another condition
// on every write.
//
// The [Gate] sheds load with the same means but without renewal or fence, for decisions that a database makes in the end.
package lock
