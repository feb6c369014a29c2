// Package dispatches keeps dispatches and decides who gets one. It owns the tables dispatches, claims and dispatch_words.
//
//   - dispatches.go: Commit, by which each change is written with its events, settled if the reply is lost, and announced
//   - claim.go: a claim; claim_snapshot.go reads what it depends on, last_known.go remembers it, claim_call.go writes it by one call
//   - create.go, update.go and withdrawals.go: the other changes
//   - row.go and read.go: rows, and lists of them; words.go: the words by which dispatches are found
package dispatches
