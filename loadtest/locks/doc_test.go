// Package locks compares the locks of firsttap/lock with other Go libraries for the same, on real servers that it starts
// itself. `make bench-locks` prints its tables:
//
//   - TestScoreboard: who still works when the next one has got in, after the connection of a holder has gone silent.
//   - TestCost: what acquiring, losing and releasing costs, in commands and in time.
//   - TestCostOfRenewals: what keeping a thousand locks costs.
//
// It is a module of its own, so that the other libraries stay out of the product's. Each is used as its documentation
// tells; where that leaves something open, the way's note says what was done.
//
// Only what FirstTap promises is asserted: nobody works beside the next holder. The rest is measured and printed.
package locks
