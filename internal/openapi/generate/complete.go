package main

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

// complete expands the shorthands of the files.
func (d *document) complete() error {
	if err := d.defineProblems(); err != nil {
		return err
	}
	for _, address := range slices.Sorted(maps.Keys(d.at("paths"))) {
		for _, method := range slices.Sorted(maps.Keys(d.at("paths", address))) {
			op := operation{object: d.at("paths", address, method), document: d, method: method, address: address}
			if err := op.complete(); err != nil {
				return fmt.Errorf("%s %s: %w", method, address, err)
			}
		}
	}
	delete(d.object, "x-problems")
	return nil
}

type operation struct {
	object
	document        *document
	method, address string
}

func (o *operation) complete() error {
	o.addSession()
	responses := at(o.object, "responses")
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		response := at(responses, status)
		if of, ok := response["x-list"]; ok {
			response["content"] = object{"application/json": object{"schema": o.document.page(text(of), at(response, "x-with"))}}
		}
		delete(response, "x-list")
		delete(response, "x-with")
	}
	if o.repeatable() {
		o.object["parameters"] = append(list(o.object["parameters"]), ref("parameters", "IdempotencyKey"))
		for _, status := range slices.Sorted(maps.Keys(responses)) {
			at(responses, status, "headers")["Idempotent-Replayed"] = ref("headers", "Replayed")
		}
	}
	for status := range responses {
		o.document.completeResponse(at(responses, status))
	}
	if err := o.addProblems(); err != nil {
		return err
	}
	o.object["parameters"] = append(list(o.object["parameters"]), ref("parameters", "RequestId"))
	if body, ok := o.object["requestBody"].(object); ok {
		o.document.exemplify(body)
	}
	return nil
}

func (d *document) completeResponse(response object) {
	at(response, "headers")["X-Request-Id"] = ref("headers", "RequestId")
	d.exemplify(response)
}

// role returns the role that the operation requires: that of an admin's key, "driver" for a driver's token, "" for no
// authentication.
func (o *operation) role() string {
	for _, requirement := range list(o.object["security"]) {
		for scheme, roles := range requirement.(object) {
			if scheme == "driverToken" {
				return "driver"
			}
			return text(list(roles)[0])
		}
	}
	return ""
}

// addSession allows a session wherever an admin's key is accepted.
func (o *operation) addSession() {
	requirements := list(o.object["security"])
	for _, requirement := range requirements {
		if roles, ok := requirement.(object)["adminKey"]; ok {
			o.object["security"] = append(requirements, object{"session": roles})
			return
		}
	}
}

// repeatable reports whether the operation accepts Idempotency-Key.
func (o *operation) repeatable() bool {
	return o.method == "post" && strings.HasPrefix(o.address, "/v1/admin/")
}

func (o *operation) takes(in, name string) bool {
	return slices.ContainsFunc(list(o.object["parameters"]), func(p any) bool {
		parameter := o.document.resolve(p.(object))
		return parameter["in"] == in && (name == "" || parameter["name"] == name && parameter["required"] == true)
	})
}

// resolve returns the component that o refers to, or o itself if it is no reference.
func (d *document) resolve(o object) object {
	to, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	return d.at("components", path.Base(path.Dir(to)), path.Base(to))
}

// page defines the schema of a page of such items, with further members, and returns a reference to it.
func (d *document) page(of string, with object) object {
	name := of + "Page"
	if len(with) > 0 {
		name += "With"
		for _, k := range slices.Sorted(maps.Keys(with)) {
			name += strings.ToUpper(k[:1]) + k[1:]
		}
	}
	properties := object{
		"items":       object{"type": "array", "items": ref("schemas", of)},
		"next_cursor": object{"type": []any{"string", "null"}, "description": "Send it as cursor to read on. Null is the end."},
		"server_time": ref("schemas", "Timestamp"),
	}
	maps.Copy(properties, with)
	example := object{
		"next_cursor": nil, "server_time": d.example(ref("schemas", "Timestamp")), "items": []any{d.example(ref("schemas", of))},
	}
	for k, schema := range with {
		example[k] = d.example(schema.(object))
	}
	required := []any{}
	for _, k := range slices.Sorted(maps.Keys(properties)) {
		required = append(required, k)
	}
	d.at("components", "schemas")[name] = object{
		"type": "object", "required": required, "properties": properties, "examples": []any{example},
	}
	return ref("schemas", name)
}

// example returns the first example of a schema, nil if it has none. Without one of its own, a list or an object gets an example
// composed of its members' examples.
func (d *document) example(schema object) any {
	if all := d.examples(schema); len(all) > 0 {
		return all[0]
	}
	return nil
}

func (d *document) examples(schema object) []any {
	schema = d.resolve(schema)
	if all := list(schema["examples"]); len(all) > 0 {
		return all
	}
	switch schema["type"] {
	case "array":
		return []any{[]any{d.example(at(schema, "items"))}}
	case "object":
		example := object{}
		for k := range at(schema, "properties") {
			example[k] = d.example(at(schema, "properties", k))
		}
		return []any{example}
	}
	return nil
}

// exemplify gives the body of a request or a response the examples of its schema.
func (d *document) exemplify(body object) {
	content, ok := body["content"].(object)
	if !ok {
		return
	}
	for kind := range content {
		media := at(content, kind)
		if media["example"] != nil || media["examples"] != nil {
			continue
		}
		named := object{}
		for i, example := range d.examples(at(media, "schema")) {
			named["example "+strconv.Itoa(i+1)] = object{"value": example}
		}
		media["examples"] = named
	}
}

func title(status int) string { return http.StatusText(status) }
