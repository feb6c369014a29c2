package testkit

// Settings looks up an environment that holds these variables and nothing else: name, value, name, value.
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
