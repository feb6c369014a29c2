package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// environment is what the settings are read from: variables, or the files that variables name.
type environment struct {
	lookup func(string) (string, bool)
	bad    func(name string, err error)
	known  map[string]bool // every name that was asked for
}

const (
	ourPrefix  = "FIRSTTAP_"
	fileEnding = "_FILE"
)

// value returns a setting, "" if it is not set. Each setting of ours may be in a file, which the variable of that name with _FILE names.
func (e *environment) value(name string) string {
	e.known[name] = true
	v, _ := e.lookup(name)
	if !strings.HasPrefix(name, ourPrefix) {
		return v
	}
	fromFile := name + fileEnding
	e.known[fromFile] = true
	file, _ := e.lookup(fromFile)
	switch {
	case file == "":
		return v
	case v != "":
		e.bad(fromFile, fmt.Errorf("%s is set, too: leave one of them unset", name))
		return v
	}
	raw, err := os.ReadFile(file)
	v = strings.TrimRight(string(raw), "\r\n")
	switch {
	case err != nil:
		e.bad(fromFile, fmt.Errorf("the file can't be read: %w; correct the path, or let this user read the file", err))
	case v == "":
		e.bad(fromFile, fmt.Errorf("%s is empty: write the value of %s into it", file, name))
	}
	return v
}

// notSettings are names that begin as ours and are no settings: Kubernetes sets those of each service in the namespace whose name begins
// with firsttap, and the project's own tests and tools have some.
var notSettings = regexp.MustCompile(`^FIRSTTAP_(?:` +
	`(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)` +
	`|TEST(?:_[A-Z0-9_]+)?|BIN|MYSQL_ROOT|TIDB|FCMSIM|CHROMIUM|SCREENSHOTS|BROWSER_OUT|SCALE|TRACE)$`)

// checkNames reports the names that begin as those of settings and are none, after all settings were read: a misspelled setting does
// nothing.
func (e *environment) checkNames(names []string) {
	for _, name := range names {
		if !strings.HasPrefix(name, ourPrefix) || e.known[name] || notSettings.MatchString(name) {
			continue
		}
		if v, _ := e.lookup(name); strings.HasSuffix(name, "_PORT") && strings.Contains(v, "://") {
			continue // Kubernetes sets it, too
		}
		next := "README.md lists the settings"
		if known := e.nearest(name); known != "" {
			next = "did you mean " + known + "?"
		}
		e.bad(name, errors.New("there is no such setting; "+next))
	}
}

// nearest returns the known name of ours that the fewest changes of a letter make of name, "" if those are more than half of its letters.
func (e *environment) nearest(name string) (found string) {
	least := (len(name) - len(ourPrefix)) / 2
	for known := range e.known {
		if !strings.HasPrefix(known, ourPrefix) {
			continue
		}
		d := distance(name, known)
		if d < least || d == least && (found == "" || known < found) {
			found, least = known, d
		}
	}
	return found
}

// distance is how many letters have to be added, left out or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(before[j+1]+1, row[j]+1, before[j])
			if a[i] != b[j] {
				row[j+1] = min(before[j+1], row[j], before[j]) + 1
			}
		}
	}
	return row[len(b)]
}
