package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/config"
	"firsttap/handler"
	"firsttap/limit"
	"firsttap/redisclient"
)

// openLimits has the callers' rates hold over all instances that share a Redis.
func openLimits(api *handler.API, work *background, c config.Config, metrics prometheus.Registerer, log *slog.Logger) error {
	if c.RedisURL == "" {
		return nil
	}
	// A client of its own: whoever asks for more than their share keeps no claim waiting for a connection.
	client, err := redisclient.Dial(c.RedisURL, redisTimeout)
	if err != nil {
		return err
	}
	work.closers = append(work.closers, func() { client.Close() })
	counts := limit.NewMetrics(metrics)
	open := func(r limit.Rate) *limit.Limiter {
		o := r.Limit()
		o.Redis, o.Timeout, o.Log, o.Metrics = client, redisTimeout, log, counts
		l := limit.New(o)
		work.Go(func() { l.Run(work.ctx) })
		return l
	}
	api.DriverLimit, api.AdminLimit = open(c.DriverRate), open(c.AdminRate)
	return nil
}
