// Package openapi has the OpenAPI 3.1 document of the HTTP API, and a page to read it with.
//
// The document is written by hand in api/*.yaml. Document joins the files and spells out what they say once, so that it
// can't be forgotten where it holds:
//
//   - x-problems names the codes of the table in problems.yaml that an operation can answer with. They become responses,
//     with those that follow from its security, body, If-Match and Idempotency-Key.
//   - x-list: X is a page of X, and x-with what the page has besides.
//   - Where an admin's key is taken, a session is too.
//   - Each response has X-Request-Id, and each of an admin's POST takes Idempotency-Key.
//   - A body is shown by the examples of its schema.
package openapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

//go:embed api/*.yaml
var files embed.FS

type object = map[string]any

// Document returns the document as JSON, with version as the API's. It fails only where the files are wrong.
func Document(version string) ([]byte, error) {
	d := document{}
	names, err := fs.Glob(files, "api/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := d.add(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := d.complete(); err != nil {
		return nil, err
	}
	if version != "" {
		d.at("info")["version"] = version
	}
	return json.Marshal(d.object)
}

// document is the joined files. Its methods change it in place.
type document struct{ object }

func (d *document) add(name string) error {
	raw, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	var part object
	if err := yaml.Unmarshal(raw, &part); err != nil {
		return err
	}
	if d.object == nil {
		d.object = object{}
	}
	return join(d.object, part)
}

// join adds what part has to all. What both have is joined where it is an object, and an error where it is not.
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
			return fmt.Errorf("%s is said twice", k)
		}
		if err := join(a, b); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// at returns the object at path, which is made where there is none.
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
