package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// implied returns the codes that follow from the operation's security, body and parameters.
func (o *operation) implied() (codes []string) {
	role := o.role()
	if role != "" {
		codes = append(codes, "UNAUTHENTICATED", "RATE_LIMITED", "UNAVAILABLE", "INTERNAL")
	}
	if role != "" && role != "driver" {
		codes = append(codes, "FORBIDDEN")
	}
	_, body := o.object["requestBody"]
	if body || o.repeatable() {
		codes = append(codes, "MALFORMED_REQUEST", "BODY_TOO_LARGE", "BODY_TIMEOUT", "UNSUPPORTED_MEDIA_TYPE")
	}
	if strings.HasPrefix(o.address, "/v1/") { // each checks its query
		codes = append(codes, "VALIDATION_FAILED")
	}
	if o.takes("query", "") {
		codes = append(codes, "MALFORMED_REQUEST")
	}
	if o.repeatable() {
		codes = append(codes, "IDEMPOTENCY_KEY_IN_USE", "IDEMPOTENCY_KEY_REUSED")
	}
	if o.takes("header", "If-Match") {
		codes = append(codes, "PRECONDITION_REQUIRED", "VERSION_MOVED")
	}
	return codes
}

// addProblems adds a response for each status among the codes that the operation can answer with.
func (o *operation) addProblems() error {
	codes := o.implied()
	for _, c := range list(o.object["x-problems"]) {
		codes = append(codes, text(c))
	}
	delete(o.object, "x-problems")
	slices.Sort(codes)
	byStatus := map[string][]string{}
	for _, code := range slices.Compact(codes) {
		if _, known := o.document.at("x-problems")[code]; !known {
			return fmt.Errorf("%s is not a code of problems.yaml", code)
		}
		status := strconv.Itoa(o.document.at("x-problems", code)["status"].(int))
		byStatus[status] = append(byStatus[status], code)
	}
	for status, codes := range byStatus {
		responses := at(o.object, "responses")
		if _, ours := responses[status]; ours {
			return fmt.Errorf("%s is both a response and a problem", status)
		}
		responses[status] = ref("responses", o.document.problem(status, codes))
	}
	return nil
}

// problem defines the response of that status with those codes, and returns its name.
func (d *document) problem(status string, codes []string) (name string) {
	var (
		says     []string
		kinds    []any
		mapping  = object{}
		examples = object{}
		headers  = object{}
	)
	for _, code := range codes {
		entry, schema := d.at("x-problems", code), ref("schemas", schemaOf(code))
		says = append(says, fmt.Sprintf("- `%s`: %s", code, text(entry["when"])))
		kinds = append(kinds, schema)
		mapping[code] = schema["$ref"]
		examples[code] = object{"summary": entry["when"], "value": d.example(schema)}
		name += strings.TrimSuffix(schemaOf(code), "Problem")
		if entry["retry"] == true {
			headers["Retry-After"] = ref("headers", "RetryAfter")
		}
	}
	if len(headers) > 0 && slices.ContainsFunc(codes, func(c string) bool { return d.at("x-problems", c)["retry"] != true }) {
		headers["Retry-After"] = object{
			"description": "How many seconds to wait, where that helps.",
			"schema":      object{"type": "integer", "minimum": 1},
		}
	}
	if status == "401" {
		headers["WWW-Authenticate"] = ref("headers", "Authenticate")
	}
	schema := kinds[0].(object)
	if len(kinds) > 1 {
		schema = object{"oneOf": kinds, "discriminator": object{"propertyName": "code", "mapping": mapping}}
	}
	response := object{
		"description": strings.Join(says, "\n"), "headers": headers,
		"content": object{"application/problem+json": object{"schema": schema, "examples": examples}},
	}
	d.completeResponse(response)
	d.at("components", "responses")[name] = response
	return name
}

// schemaOf returns the name of a problem's schema: AlreadyTakenProblem for ALREADY_TAKEN.
func schemaOf(code string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(code, "_") {
		b.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return b.String() + "Problem"
}

// defineProblems defines a schema for each code. The code is a constant of its schema, so that a client can tell by the code which
// members a problem has.
func (d *document) defineProblems() error {
	for _, code := range slices.Sorted(maps.Keys(d.at("x-problems"))) {
		entry := d.at("x-problems", code)
		status, ok := entry["status"].(int)
		if !ok || title(status) == "" || text(entry["when"]) == "" || text(entry["detail"]) == "" {
			return fmt.Errorf("%s: status, when and detail are required", code)
		}
		kind := "urn:firsttap:problem:" + code
		properties := object{
			"type":     object{"type": "string", "const": kind},
			"title":    object{"type": "string"},
			"status":   object{"type": "integer", "const": status},
			"detail":   object{"type": "string", "description": "For people."},
			"instance": object{"type": "string", "description": "The path that was asked for."},
			"code":     object{"type": "string", "const": code, "description": "For programs."},
		}
		example := object{
			"type": kind, "title": title(status), "status": status, "detail": entry["detail"], "instance": "/v1", "code": code,
		}
		for name, member := range at(entry, "members") {
			properties[name] = member
			example[name] = d.example(member.(object))
		}
		maps.Copy(example, at(entry, "example"))
		required := []any{}
		for _, k := range slices.Sorted(maps.Keys(properties)) {
			required = append(required, k)
		}
		d.at("components", "schemas")[schemaOf(code)] = object{
			"type": "object", "description": entry["when"], "required": required, "properties": properties, "examples": []any{example},
		}
	}
	return nil
}
