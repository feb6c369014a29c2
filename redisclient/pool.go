package redisclient

// Connections are those of a client: how many are open, how many of them nobody uses, and how often one was waited for in
// vain.
type Connections struct{ Open, Idle, Timeouts uint32 }

// Pool counts a client's connections as they are now.
func Pool(client Client) Connections {
	s := client.PoolStats()
	return Connections{Open: s.TotalConns, Idle: s.IdleConns, Timeouts: s.Timeouts}
}
