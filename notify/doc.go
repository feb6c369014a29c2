// Package notify is the relay: it pushes to drivers' phones what the outbox holds.
//
// Nothing is told before it is committed. What is to be pushed is a row of the outbox, written in the transaction that
// decided it; a [Relay] leases the row, sends it outside any transaction, and completes it as the holder of the lease.
// So a push is sent at least once, and it carries what a phone needs to show it once.
package notify
