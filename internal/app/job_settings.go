package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"firsttap/internal/config"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/schedule"
)

// readConfig reads the settings as config.Read does, and checks FIRSTTAP_JOBS, of which package config knows the form only.
func readConfig(lookup func(string) (string, bool), names ...string) (config.Config, error) {
	c, err := config.Read(lookup, names...)
	jobs, wrong := jobsOf(nil, c)
	if wrong == nil {
		_, wrong = schedule.New(schedule.Options{Jobs: jobs, Zone: c.Push.Zone})
	}
	if wrong == nil {
		return c, err
	}
	problems := []error{&config.Problem{Setting: "FIRSTTAP_JOBS", Err: wrong}}
	for _, p := range config.Problems(err) {
		problems = append(problems, p)
	}
	return c, errors.Join(problems...)
}

// jobsOf returns the jobs as the settings have them, or all that is wrong with these. Only their Demand and Work use the store.
func jobsOf(store *repository.Store, c config.Config) ([]schedule.Job, error) {
	jobs := scheduledJobs(store, c)
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	var problems []error
	for _, s := range c.Jobs {
		k := slices.Index(names, s.Name)
		if k < 0 {
			problems = append(problems, fmt.Errorf("there is no job %q: want one of %s", s.Name, strings.Join(names, ", ")))
			continue
		}
		if err := adjust(&jobs[k], s); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return jobs, errors.Join(problems...)
}

// adjust makes the job as the setting has it. The scheduler checks its times, and whether its hold agrees with them.
func adjust(j *schedule.Job, s config.JobSetting) (err error) {
	if j.Off = s.Off; s.When != "" {
		if j.When, err = schedule.ParseWhen(s.When); err != nil {
			return err
		}
	}
	// Work that is expected to be short may have a fixed hold instead. Other work goes on for as long as its lock is renewed.
	lasting := j.Hold.RenewEvery > 0 && j.Hold != lock.Expected(2*j.Hold.RenewEvery)
	switch {
	case s.AtMost > 0 && lasting:
		return errors.New("its lock is renewed for as long as it works, so it has no atMost; FIRSTTAP_LOCK_LEASE is the lease")
	case s.AtLeast != nil && j.OnLeader:
		return errors.New("it runs on the leader and has no lock of its own, so it has no atLeast")
	}
	if s.AtMost > 0 {
		j.Hold = lock.Between(j.Hold.AtLeast, s.AtMost)
	}
	if s.AtLeast != nil {
		j.Hold.AtLeast = *s.AtLeast
	}
	if longest := max(j.Hold.AtMost, j.Hold.TTL); j.Hold.AtLeast > longest {
		return fmt.Errorf("atLeast is %s, longer than it is held at most, %s", j.Hold.AtLeast, longest)
	}
	return nil
}
