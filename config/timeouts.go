package config

import "time"

// Timeouts holds how long a client may take before its connection is closed.
//
// The number of connections is not bounded: an attacker who fills such a bound would keep every driver out, while an idle or
// slow connection costs a few kilobytes until its timeout. The proxy bounds the connections of one address, which it sees.
type Timeouts struct {
	Headers, Request, Answer, Idle time.Duration
}
