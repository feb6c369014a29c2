// Package retention deletes what is too old, by a list of rules and one loop. It deletes rows of the other rooms' tables, and writes none.
package retention
