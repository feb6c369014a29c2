// Package retention deletes what is too old, by a list of rules and one loop. It deletes rows of the other rooms' tables, and
// raises the version of a driver whose newest claim it deletes.
package retention
