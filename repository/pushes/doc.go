// Package pushes makes notifications of events, and leases them to relays. It owns the tables notifications and expansions, and takes
// events from the queue.
//
//   - outbox.go: Outbox, one relay's access, which leases events and records results; leases.go leases what is to be sent
//   - expand.go writes the notifications of events; audience.go says to whom, page by page
//   - notifications.go: what the backoffice sees, and a dead notification that is sent again
package pushes
