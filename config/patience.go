package config

import "time"

// Patience is how long a client may take. Whoever takes longer loses the connection, and nobody else waits meanwhile.
//
// The number of connections is not bounded: a bound that somebody fills keeps every driver out, where an idle or a slow
// connection costs a few kilobytes until its time is over. How many one address may open is for the proxy to say, which
// sees it.
type Patience struct {
	Headers, Request, Answer, Idle time.Duration
}
