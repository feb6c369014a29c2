// Command generate makes openapi.json of the files in api. It is run in the folder that holds both, by go generate.
//
// It joins the files and expands what they say once, so that nobody can forget it where it applies:
//
//   - x-problems names the codes of problems.yaml that an operation can answer with. They become responses, together with
//     those that follow from the operation's security, body, If-Match and Idempotency-Key.
//   - x-list: X is a page of X, and x-with names the page's other members.
//   - An operation that takes an admin's key takes a session too.
//   - Each response has X-Request-Id, and each POST of an admin takes Idempotency-Key.
//   - The examples of a schema become the examples of the bodies that have it.
//
// Each schema, and each combination of problems, is written once and referred to.
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
)

func main() {
	raw, err := generate(os.DirFS("."))
	if err == nil {
		err = os.WriteFile("openapi.json", raw, 0o644) //nolint:gosec // it is public
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

type object = map[string]any

// generate returns the document that api/*.yaml describe, as JSON in one line.
func generate(files fs.FS) ([]byte, error) {
	names, err := fs.Glob(files, "api/*.yaml")
	if err != nil {
		return nil, err
	}
	d := document{object{}}
	for _, name := range names {
		if err := d.add(files, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := d.complete(); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(d.object)
	return append(raw, '\n'), err
}

// document is the joined files. Its methods change it in place.
type document struct{ object }

func (d *document) add(files fs.FS, name string) error {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	var part object
	if err := yaml.Unmarshal(raw, &part); err != nil {
		return err
	}
	return join(d.object, part)
}

// join adds the members of part to all. Objects that both have are joined; any other member that both have is an error.
func join(all, part object) error {
	for _, k := range slices.Sorted(maps.Keys(part)) {
		had, twice := all[k]
		if !twice {
			all[k] = part[k]
			continue
		}
		a, isObject := had.(object)
		b, areObjects := part[k].(object)
		if !isObject || !areObjects {
			return fmt.Errorf("%s is defined twice", k)
		}
		if err := join(a, b); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// at returns the object at path; it creates the objects that are missing.
func (d *document) at(path ...string) object { return at(d.object, path...) }

func at(o object, path ...string) object {
	for _, p := range path {
		next, ok := o[p].(object)
		if !ok {
			next = object{}
			o[p] = next
		}
		o = next
	}
	return o
}

func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
