package idempotency

import "errors"

var (
	// ErrKeyReused says that the Idempotency-Key was sent with another request before, or by another secret.
	ErrKeyReused = errors.New("the Idempotency-Key belongs to another request")
	// ErrKeyInUse says that a request with the Idempotency-Key is under way.
	ErrKeyInUse = errors.New("a request with this Idempotency-Key is under way")
)

// Request is a request that is to be done once, however often it is sent.
type Request struct {
	Caller      string // the key's identifier
	Name        string // what the caller calls the request, hashed
	Fingerprint string // of what is asked for
}

// Reservation is the right to do a request, until its lease ends; or what was answered to it.
type Reservation struct {
	Request
	Seed  Seed
	Lease string
	// Answer is sealed; nil unless the request has been answered.
	Answer []byte
}
