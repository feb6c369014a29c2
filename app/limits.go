package app

import (
	"firsttap/limit"
	"firsttap/redisclient"
)

// openLimits returns the limiters of drivers and of admin keys, which hold over all instances that share a Redis. Without Redis
// they are nil, and each instance limits by itself.
func (i *instance) openLimits() (drivers, admins *limit.Limiter, err error) {
	if i.config.RedisURL == "" {
		return nil, nil, nil
	}
	// A client of its own: callers above their rate keep no claim waiting for a connection.
	client, err := redisclient.Dial(i.config.RedisURL, redisTimeout)
	if err != nil {
		return nil, nil, err
	}
	i.clients = append(i.clients, client)
	counts := limit.NewMetrics(i.telemetry)
	open := func(r limit.Rate) *limit.Limiter {
		o := r.Options()
		o.Redis, o.Timeout, o.Log, o.Metrics = client, redisTimeout, i.log, counts
		l := limit.New(o)
		i.work.Go(func() { l.Run(i.work.ctx) })
		return l
	}
	return open(i.config.DriverRate), open(i.config.AdminRate), nil
}
