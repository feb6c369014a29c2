package app

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"firsttap/config"
	"firsttap/repository"
	"firsttap/schedule"
)

// openSchedule returns what runs the jobs, each on one instance at a time.
func openSchedule(c config.Config, store *repository.Store, locks *jobLocks, metrics prometheus.Registerer, log *slog.Logger) (*schedule.Scheduler, error) {
	var others []string
	if c.Push.Leader {
		others = append(others, relayName)
	}
	return schedule.New(schedule.Options{
		Jobs: schedule.FirstTap(store, c.Push.RemindBefore), Ledger: store, Locks: locks.strategy, Others: others, Zone: c.Push.Zone,
		Who: instanceName(), Log: log, Metrics: metrics, LockMetrics: locks.metrics,
	})
}

// instanceName tells an operator which process it was. It identifies nobody.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	const size = 40 // of the host's name: the ledger has 60 bytes in all
	return fmt.Sprintf("%.*s:%d", size, host, os.Getpid())
}
