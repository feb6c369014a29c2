package handler

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"firsttap/lock"
)

// probe is a value of a field: refused if it is over a documented limit, accepted if it is at the limit.
type probe struct {
	at    []any // the way to it: names and indices
	what  string
	value any
	over  bool
}

// absent removes the field.
var absent = new(int)

// probes returns the values to try at the schema's limits, for a body like the example.
func (c *contract) probes(schema any, example any, at []any) (all []probe) {
	s := c.resolve(schema)
	add := func(what string, value any, over bool) {
		all = append(all, probe{slices.Clone(at), what, value, over})
	}
	kinds := kindsOf(s)
	for kind, wrong := range map[string]any{"string": 1, "integer": "x", "number": "x", "boolean": "x", "array": "x", "object": "x"} {
		if slices.Contains(kinds, kind) && len(at) > 0 {
			add("a wrong type", wrong, true)
		}
	}
	if slices.Contains(kinds, "null") {
		add("null", nil, false)
	}
	switch {
	case slices.Contains(kinds, "string"):
		c.textProbes(s, add)
	case slices.Contains(kinds, "integer"), slices.Contains(kinds, "number"):
		numberProbes(s, add)
	case slices.Contains(kinds, "array"):
		all = append(all, c.listProbes(s, example, at)...)
	case slices.Contains(kinds, "object"):
		all = append(all, c.memberProbes(s, example, at)...)
	}
	return all
}

func kindsOf(s map[string]any) (kinds []string) {
	switch k := s["type"].(type) {
	case string:
		return []string{k}
	case []any:
		for _, kind := range k {
			kinds = append(kinds, kind.(string))
		}
	}
	return kinds
}

func number(v any) (int, bool) {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	return int(i), ok && err == nil
}

func (c *contract) textProbes(s map[string]any, add func(string, any, bool)) {
	fits := func(string) bool { return true }
	if p, ok := s["pattern"].(string); ok {
		pattern := regexp.MustCompile(p)
		fits = pattern.MatchString
		for _, odd := range []string{" x", "x ", "a\u0000b", "a\nb", "not a number", "é", "xy", "x y"} {
			if !fits(odd) {
				add("not the pattern", odd, true)
			}
		}
	}
	if n, ok := number(s["maxLength"]); ok {
		add("too long", strings.Repeat("x", n+1), true)
		for _, letter := range []string{"x", "가", "🏗"} {
			if at := strings.Repeat(letter, n); fits(at) && !hasForm(s) {
				add("as long as may be, of "+letter, at, false)
			}
			if fits(letter) {
				add("too long, of "+letter, strings.Repeat(letter, n+1), true)
			}
		}
	}
	if n, ok := number(s["minLength"]); ok && n > 0 {
		add("too short", strings.Repeat("x", n-1), true)
	}
	if _, ok := s["enum"]; ok {
		add("none of them", "NO_SUCH", true)
	}
	if s["format"] == "date-time" {
		add("no time", "tomorrow", true)
	}
}

// hasForm tells text that is read for what it means: a language has at most 35 letters, and not any 35.
func hasForm(s map[string]any) bool {
	d, _ := s["description"].(string)
	return strings.Contains(d, "BCP 47") || s["format"] != nil
}

func numberProbes(s map[string]any, add func(string, any, bool)) {
	if n, ok := number(s["minimum"]); ok {
		add("too small", n-1, true)
		add("as small as may be", n, false)
	}
	if n, ok := number(s["exclusiveMinimum"]); ok {
		add("too small", n, true)
		add("hardly more", float64(n)+0.001, false)
	}
	if n, ok := number(s["maximum"]); ok {
		add("too large", n+1, true)
		add("as large as may be", n, false)
		if !slices.Contains(kindsOf(s), "integer") {
			add("hardly too large", float64(n)+0.001, true)
		}
	}
	if slices.Contains(kindsOf(s), "integer") {
		add("a fraction", 1.5, true)
	}
}

func (c *contract) listProbes(s map[string]any, example any, at []any) (all []probe) {
	items, _ := example.([]any)
	if len(items) == 0 {
		return nil
	}
	names, _ := c.resolve(s["items"])["enum"].([]any)
	many := func(n int) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = items[0]
			if text, ok := items[0].(string); ok {
				list[i] = fmt.Sprintf("%s %d", text, i)
			}
			if i < len(names) {
				list[i] = names[i]
			}
		}
		return list
	}
	if n, ok := number(s["maxItems"]); ok {
		all = append(all, probe{at, "too many", many(n + 1), true}, probe{at, "as many as may be", many(n), false})
	}
	if n, ok := number(s["minItems"]); ok {
		all = append(all, probe{at, "too few", many(n - 1), true}, probe{at, "as few as may be", many(n), false})
	}
	if s["uniqueItems"] == true {
		all = append(all, probe{at, "one twice", []any{items[0], items[0]}, true})
	}
	return append(all, c.probes(s["items"], items[0], append(slices.Clone(at), 0))...)
}

func (c *contract) memberProbes(s map[string]any, example any, at []any) (all []probe) {
	object, _ := example.(map[string]any)
	below := func(name string) []any { return append(slices.Clone(at), name) }
	if s["additionalProperties"] == false {
		all = append(all, probe{below("no_such_field"), "an unknown field", 1, true})
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if member := c.resolve(s["properties"].(map[string]any)[name.(string)]); !slices.Contains(kindsOf(member), "integer") { // 0 is an amount
			all = append(all, probe{below(name.(string)), "missing", absent, true})
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		all = append(all, c.probes(properties[name], object[name], below(name))...)
	}
	return all
}

// with returns a copy of v with the value there.
func with(v any, at []any, value any) any {
	if len(at) == 0 {
		return value
	}
	if i, ok := at[0].(int); ok {
		list := slices.Clone(v.([]any))
		list[i] = with(list[i], at[1:], value)
		return list
	}
	object, _ := v.(map[string]any)
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	if name := at[0].(string); value == any(absent) && len(at) == 1 {
		delete(object, name)
	} else {
		object[name] = with(object[name], at[1:], value)
	}
	return object
}

// TestLimitsOfBodies: the documented limits are enforced, and no others.
func TestLimitsOfBodies(t *testing.T) {
	t.Parallel()
	c, tried, w := documented(), 0, withJobs(t, lock.NewMemory())
	for _, op := range c.operations {
		request, _ := op.spec["requestBody"].(map[string]any)
		if request == nil {
			continue
		}
		example := fullest(op.examples())
		schema := request["content"].(map[string]any)["application/json"].(map[string]any)["schema"]
		s := newScene(t, w, op)
		for _, p := range c.probes(schema, example, nil) {
			if len(p.at) == 0 && p.value == nil {
				continue
			}
			tried++
			changed := with(example, p.at, p.value)
			if last := p.at[len(p.at)-1]; p.value == nil && (last == "site_lat" || last == "site_lng") { // both, or neither
				changed = with(with(changed, []any{"site_lat"}, nil), []any{"site_lng"}, nil)
			}
			body := strings.ReplaceAll(s.body(changed), "order-4711", s.region)
			r := s.call(op.method, s.path, s.token, body, s.headers...)
			refused := r.status == 400 || r.status == 413 || r.status == 422 || r.status == 404
			if r.status >= 500 || p.over != refused {
				t.Errorf("%s: %v %s: %d %.300s", op.route(), p.at, p.what, r.status, r.raw)
			}
			if !refused {
				s = newScene(t, w, op)
			}
		}
	}
	if tried < 250 {
		t.Errorf("only %d", tried)
	}
}

// fullest returns the example with the most fields.
func fullest(examples []any) any {
	return slices.MaxFunc(examples, func(a, b any) int {
		x, _ := a.(map[string]any)
		y, _ := b.(map[string]any)
		return len(x) - len(y)
	})
}

// TestLimitsOfParameters: the same for the parameters in the query and the path, and for Idempotency-Key.
func TestLimitsOfParameters(t *testing.T) {
	t.Parallel()
	c, tried, w := documented(), 0, withJobs(t, lock.NewMemory())
	for _, op := range c.operations {
		var s *scene
		for _, spec := range op.parameters(c) {
			name := spec["name"].(string)
			in := spec["in"].(string)
			limited := in == "query" || name == "installation_id" || name == "Idempotency-Key"
			if !limited {
				continue
			}
			for _, p := range c.probes(spec["schema"], nil, []any{name}) {
				text := fmt.Sprint(p.value)
				if p.what == "a wrong type" && slices.Contains(kindsOf(c.resolve(spec["schema"])), "string") ||
					in == "header" && strings.ContainsAny(text, "\n\x00") || text == "" {
					continue // text is text; a header can't hold it; what is empty was not sent
				}
				tried++
				if s == nil {
					s = newScene(t, w, op)
				}
				body := strings.ReplaceAll(s.body(op.examples()[0]), "order-4711", s.region)
				path, headers := s.path, s.headers
				switch in {
				case "query":
					path += "?" + url.Values{name: {text}}.Encode()
				case "path":
					path = strings.TrimSuffix(path, "phone") + url.PathEscape(text)
				default:
					headers = append(slices.Clone(headers), name, text)
				}
				r := s.call(op.method, path, s.token, body, headers...)
				if r.status >= 500 || p.over != (r.status == 422) {
					t.Errorf("%s: %s %s: %d %.300s", op.route(), name, p.what, r.status, r.raw)
				}
				if r.status != 422 && op.method != "GET" {
					s = nil // it has changed what the scene is about
				}
				if in == "header" && r.status < 300 {
					w.exec("DELETE FROM idempotency_keys") // the next operation sends the same
				}
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d", tried)
	}
}
