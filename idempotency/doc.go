// Package idempotency says what makes a request that is sent twice be done once: its key, its reservation, and the seed from
// which all identifiers come that the request makes.
package idempotency
