package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"firsttap/repository/retention"
)

const (
	retentionVar = "FIRSTTAP_RETENTION"
	// defaultRetention also has what the setting does not name.
	defaultRetention = "ended=365d,attempts=90d,audit=0"
	maxRetentionDays = 36500
)

// readRetention reads a list like ended=365d,attempts=90d,audit=0. Days are the only unit: with others, a slip of the pen would delete
// a year's history at the next start.
func readRetention(s string) (retention.Periods, error) {
	var kept retention.Periods
	if err := addRetention(&kept, defaultRetention); err != nil {
		panic(err) // the default is correct
	}
	return kept, addRetention(&kept, s)
}

func addRetention(kept *retention.Periods, s string) error {
	if s == "" {
		return nil
	}
	of := map[string]*time.Duration{"ended": &kept.Ended, "attempts": &kept.Attempts, "audit": &kept.Audit}
	var problems []error
	seen := map[string]bool{}
	for item := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		to := of[name]
		switch {
		case to == nil:
			problems = append(problems, fmt.Errorf("%q is not ended=, attempts= or audit=", item))
			continue
		case seen[name]:
			problems = append(problems, fmt.Errorf("%s is given twice", name))
			continue
		}
		seen[name] = true
		days, err := readDays(value)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
			continue
		}
		*to = days
	}
	return errors.Join(problems...)
}

func readDays(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	number, days := strings.CutSuffix(s, "d")
	n, err := strconv.ParseUint(number, 10, 32)
	if !days || err != nil || n == 0 || n > maxRetentionDays {
		return 0, fmt.Errorf("%q is not 0, for ever, or 1d to %dd", s, maxRetentionDays)
	}
	return time.Duration(n) * 24 * time.Hour, nil
}
