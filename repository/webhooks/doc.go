// Package webhooks keeps endpoints and the deliveries to them. It owns the tables webhooks and webhook_deliveries, and takes events from
// webhook_events.
//
//   - webhooks.go: endpoints; webhooks_log.go: their deliveries as an admin sees them
//   - webhooks_fanout.go writes the deliveries of events, webhooks_replay.go those of the past
//   - webhooks_lease.go leases deliveries in the order of each dispatch, webhooks_complete.go writes how attempts ended
package webhooks
