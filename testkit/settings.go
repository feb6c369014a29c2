package testkit

import "strings"

// Environment is a lookup over name=value pairs.
func Environment(settings ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, s := range settings {
			if v, ok := strings.CutPrefix(s, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
}

// Settings is an environment that holds these and nothing else: name, value, name, value.
func Settings(pairs ...string) func(string) (string, bool) {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, set := all[name]
		return v, set
	}
}
