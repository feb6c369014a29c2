package fcmtest

// Limit bounds the devices, messages and subscriptions that s keeps.
func (s *Server) Limit(n int64) { s.fleet.limit = n }
