package fcmtest

// Limit has s keep no more than n devices, messages and subscriptions.
func (s *Server) Limit(n int64) { s.fleet.limit = n }
