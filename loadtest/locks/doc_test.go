// Package locks compares the locks of firsttap/lock with other Go libraries, on real servers that it starts itself.
// `make bench-locks` prints its tables:
//
//   - TestScoreboard: how long a holder goes on after the next one has the lock, once its connection has gone silent.
//   - TestCost: the cost of acquiring, being refused and releasing, in commands and in time.
//   - TestCostOfRenewals: the cost of keeping a thousand locks.
//
// `make seeds`, which needs a JDK and Maven, runs these beside processes of Java, which loadtest/jvm has:
//
//   - TestShedLockInJavaIsTheSameLock: ShedLock's locks and ours exclude each other, on the table and on Redis.
//   - TestRedissonSideBySide: the costs and waits of Redisson's RLock and of a renewed lease on Redis, in one table.
//
// It is a module of its own, so that the other libraries stay out of the product's. Each is used as documented; the way's
// note describes what its documentation leaves open.
//
// What is asserted is that no holder works beside the next one, and what ShedLock and FirstTap are to each other. The rest is measured and
// printed.
package locks
