// Package outbox says what the rows of the outbox are: events to be expanded, pushes to be sent, and their lanes. It knows
// only package dispatch; the rows are in package repository, the relay that sends them in package notify.
package outbox
