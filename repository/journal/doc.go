// Package journal keeps what the transactions of other rooms append: events, audit entries, and the answers to requests with an
// Idempotency-Key. It owns the tables events, audit and idempotency_keys, and puts each event into webhook_events while an
// endpoint is active.
//
// The tables events and webhook_events are queues: the rooms pushes and webhooks take rows from them.
package journal
