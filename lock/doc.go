// Package lock holds named leases, so that of many processes one at a time does what a name stands for.
//
// A [Locker] holds names by a [Strategy]: [Redis] on one server, Sentinel or Cluster; a [Quorum] of independent Redis
// servers; a [Table] that ShedLock understands; [Named] locks and [Rows] of MySQL and MariaDB; [Memory] within a process.
// A [Hold] says how long: [Fixed], [Renewed], [Expected], [Between]. [Locker.Do] runs work
// under a lease, [Locker.Acquire] returns one, [Locker.Leader] elects.
//
// # What is promised
//
//   - One owner. A name has at most one lease at a time, by the server's clock. What this process's clock says does not
//     matter, as long as it runs at about the right rate.
//   - Told before. The context of the work ends before anybody else can get the name: a tenth of the TTL before the
//     server would give it away, counted from when the last answered request was sent. Its cause says why: [ErrExpired],
//     [ErrStolen], [ErrUnreachable], [ErrMaxHold] or [ErrStalled], each of them [ErrLost].
//   - Three answers. Held ([HeldError]: by whom, how long still), unavailable and lost are different errors. When nobody
//     can tell, nobody says held.
//   - An identity for each acquisition. Only its owner extends or releases a lease; repeating either, after a lost reply,
//     does no harm.
//   - Nothing is left behind. What an acquisition that failed may have taken all the same is released as soon as the
//     server can be reached. Releasing works after the caller's context has ended.
//   - A fence. Each lease has a number larger than that of every lease of the name before it, which survives restarts and
//     flushes of the server. [Fences.Enforce] refuses, in the transaction that writes, whoever has been overtaken.
//   - Bounded. A holder that dies frees the name within its TTL, one that hangs within [Hold.AtMost] or [Hold.Beat] and a
//     TTL. Every request has a timeout. Losing costs a server one command, or two with [Rows]; of a crowd in one process
//     that waits for a name, one asks.
//
// # What is not
//
// A lease is advice. A process that stands still, or does not heed its context, goes on to write when its lease is over; on
// a machine that was suspended it may not even know before the next renewal;
// a server that loses its memory, by a flush, an eviction, a failover to a replica that had not heard, or an operator
// who breaks the lease, gives the name away in the middle of it, and the holder is told at its next renewal. With [Named]
// and [Rows] so does a connection that breaks. Where that must not do harm, let what is written to check the fence, or a
// condition of its own.
//
// The [Gate] sheds load by the same means, without renewal or fence, for decisions that a database makes in the end.
package lock
