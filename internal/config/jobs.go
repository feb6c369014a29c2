package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	jobsVar      = "FIRSTTAP_JOBS"
	lockLeaseVar = "FIRSTTAP_LOCK_LEASE"
	jobOff       = "off"
	// No work is done within less than minHold, and nobody waits longer than maxHold for a lock that nobody renews.
	minHold, maxHold = time.Second, 24 * time.Hour
	// A shorter lease than minLease ends with a short pause of Redis or of the process. Others wait for a lease when its holder has died.
	minLease, maxLease = 3 * time.Second, 10 * time.Minute
)

// JobSetting is what FIRSTTAP_JOBS says of a job. Which jobs there are and what each can have, this package does not know.
type JobSetting struct {
	Name    string
	When    string // a cron expression with seconds, or @every with a duration; "" for the job's own
	Off     bool
	AtMost  time.Duration  // 0 for the job's own
	AtLeast *time.Duration // nil for the job's own
}

// readJobs reads a list like "expire-offers=@every 5s; remind=0 * * * * *,atMost=15s; supply=off".
func readJobs(s string) (jobs []JobSetting, err error) {
	var problems []error
	for item := range strings.SplitSeq(s, ";") {
		if strings.TrimSpace(item) == "" {
			continue // after the last one, or in an empty setting
		}
		name, value, _ := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		if slices.ContainsFunc(jobs, func(j JobSetting) bool { return j.Name == name }) {
			problems = append(problems, fmt.Errorf("%s is given twice", name))
		}
		j := JobSetting{Name: name}
		if err := j.read(value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(problems...)
}

// read reads what is behind a job's name. A cron expression may have commas, and has no =.
func (j *JobSetting) read(value string) error {
	var when []string
	for part := range strings.SplitSeq(value, ",") {
		name, text, isHold := strings.Cut(strings.TrimSpace(part), "=")
		if !isHold {
			when = append(when, part)
			continue
		}
		hold, err := time.ParseDuration(text)
		switch {
		case name != "atMost" && name != "atLeast":
			return fmt.Errorf("%q is not atMost= or atLeast=", name)
		case name == "atMost" && j.AtMost != 0 || name == "atLeast" && j.AtLeast != nil:
			return fmt.Errorf("%s is given twice", name)
		case err != nil:
			return fmt.Errorf("%s=%s is no duration like 30s", name, text)
		case hold > maxHold || name == "atMost" && hold < minHold || hold < 0:
			return fmt.Errorf("%s=%s is out of range: atMost is from %s to %s, and atLeast from 0", name, text, minHold, maxHold)
		case name == "atMost":
			j.AtMost = hold
		default:
			j.AtLeast = &hold
		}
	}
	j.When = strings.TrimSpace(strings.Join(when, ","))
	if j.Off = j.When == jobOff; j.Off {
		j.When = ""
	} else if j.When == "" && j.AtMost == 0 && j.AtLeast == nil {
		return errors.New("want off, a cron expression with seconds, @every and an interval, atMost= or atLeast=")
	}
	return nil
}

// readLockLease reads the lease of locks that are renewed, 0 for what each has without the setting.
func readLockLease(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && (d < minLease || d > maxLease) {
		err = fmt.Errorf("%s is not from %s to %s", d, minLease, maxLease)
	}
	return d, err
}
