package app

import (
	"fmt"
	"os"

	"firsttap/schedule"
)

// openSchedule returns what runs the jobs, each on one instance at a time.
func (i *instance) openSchedule() (*schedule.Scheduler, error) {
	var others []string
	if i.config.Push.Leader {
		others = append(others, relayName)
	}
	return schedule.New(schedule.Options{
		Jobs: schedule.Jobs(i.store, i.config.Push.RemindBefore), Ledger: i.store, Locks: i.locks.strategy, OtherLocks: others,
		Zone: i.config.Push.Zone, Instance: instanceName(), Log: i.log, Metrics: i.telemetry, LockMetrics: i.locks.metrics,
	})
}

// instanceName shows operators which process it was: host and process id. It is not unique.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	const size = 40 // bytes of the host's name; the ledger has 60 for all of it
	return fmt.Sprintf("%.*s:%d", size, host, os.Getpid())
}
