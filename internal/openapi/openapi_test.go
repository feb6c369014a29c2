package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func parsed(t *testing.T) map[string]any {
	t.Helper()
	raw, err := Document("1.2.3")
	noError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	noError(t, err)
	return v.(map[string]any)
}

func compiler(t *testing.T, document any) *jsonschema.Compiler {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	noError(t, c.AddResource("https://firsttap.test/openapi.json", document))
	return c
}

// TestValid: the document is valid by the OpenAPI Initiative's schema of OpenAPI 3.1, and each schema in it is a JSON schema.
func TestValid(t *testing.T) {
	file, err := os.Open("testdata/openapi-3.1.schema.json")
	noError(t, err)
	defer file.Close()
	meta, err := jsonschema.UnmarshalJSON(file)
	noError(t, err)
	document := parsed(t)
	c := compiler(t, document)
	noError(t, c.AddResource("https://firsttap.test/meta.json", meta))
	schema, err := c.Compile("https://firsttap.test/meta.json")
	noError(t, err)
	if err := schema.Validate(document); err != nil {
		t.Errorf("%#v", err)
	}
	// The schema of OpenAPI does not look into the schemas.
	n := 0
	walk(document, "", func(at string, o map[string]any) {
		if s, ok := o["schema"].(map[string]any); ok && !strings.Contains(at, "/example") {
			n++
			if _, err := c.Compile("https://firsttap.test/openapi.json#" + at + "/schema"); err != nil {
				t.Errorf("%s: %v: %v", at, err, s)
			}
		}
	})
	for name := range document["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.Compile("https://firsttap.test/openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 150 {
		t.Errorf("only %d schemas", n)
	}
}

// walk calls f with each object and the JSON pointer to it.
func walk(v any, at string, f func(at string, o map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		f(at, v)
		for k, member := range v {
			walk(member, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), f)
		}
	case []any:
		for i, item := range v {
			walk(item, fmt.Sprintf("%s/%d", at, i), f)
		}
	}
}

// TestReferences: each reference has a target, each component is referred to, and no shorthand of the files is left.
func TestReferences(t *testing.T) {
	document := parsed(t)
	used := map[string]bool{
		// The streams refer to them in their descriptions.
		"#/components/schemas/DriverEvent": true, "#/components/schemas/AdminEvent": true,
		// The answer to requests that are no operation.
		"#/components/schemas/MethodNotAllowedProblem": true,
	}
	walk(document, "", func(at string, o map[string]any) {
		for k := range o {
			// In YAML a comma in an unquoted description makes the rest a key.
			if strings.Contains(k, " ") && !strings.HasPrefix(k, "example ") {
				t.Errorf("%s has %q", at, k)
			}
			if strings.HasPrefix(k, "x-") {
				t.Errorf("%s has %s", at, k)
			}
		}
		to, ok := o["$ref"].(string)
		if !ok {
			return
		}
		used[to] = true
		var v any = document
		for _, p := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
			v, ok = v.(map[string]any)[p]
			if !ok {
				t.Errorf("%s: %s does not exist", at, to)
				return
			}
		}
	})
	for kind, all := range document["components"].(map[string]any) {
		if kind == "securitySchemes" {
			continue
		}
		for name := range all.(map[string]any) {
			if to := "#/components/" + kind + "/" + name; !used[to] {
				t.Errorf("nothing refers to %s", to)
			}
		}
	}
}

// TestExamples: every request and response has an example, and every example is valid by its schema.
func TestExamples(t *testing.T) {
	document := parsed(t)
	c := compiler(t, document)
	n := 0
	check := func(at string, example any) {
		n++
		s, err := c.Compile("https://firsttap.test/openapi.json#" + at)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if err := s.Validate(example); err != nil {
			raw, _ := json.Marshal(example)
			t.Errorf("%s: %s: %v", at, raw, err)
		}
	}
	walk(document, "", func(at string, o map[string]any) {
		if content, ok := o["content"].(map[string]any); ok {
			for kind, media := range content {
				at := at + "/content/" + strings.ReplaceAll(kind, "/", "~1") + "/schema"
				media := media.(map[string]any)
				examples, _ := media["examples"].(map[string]any)
				if media["example"] == nil && len(examples) == 0 {
					t.Errorf("%s has no example", at)
				}
				if media["example"] != nil {
					check(at, media["example"])
				}
				for _, e := range examples {
					check(at, e.(map[string]any)["value"])
				}
			}
		}
		if at == "/components/schemas" {
			for name, schema := range o {
				for _, e := range list(schema.(map[string]any)["examples"]) {
					check(at+"/"+name, e)
				}
			}
		}
		if schema, ok := o["schema"]; ok && schema != nil && o["in"] != nil && o["example"] != nil {
			check(at+"/schema", o["example"])
		}
	})
	if n < 250 {
		t.Errorf("only %d examples", n)
	}
}

// TestOperations: each operation has a name of its own, a summary, a tag and its security.
func TestOperations(t *testing.T) {
	document := parsed(t)
	names := map[string]string{}
	for address, methods := range document["paths"].(map[string]any) {
		for method, op := range methods.(map[string]any) {
			op, where := op.(map[string]any), method+" "+address
			name := text(op["operationId"])
			if name == "" || names[name] != "" {
				t.Errorf("%s and %s are both %q", where, names[name], name)
			}
			names[name] = where
			if text(op["summary"]) == "" || len(list(op["tags"])) != 1 || op["security"] == nil {
				t.Errorf("%s: %v", where, op)
			}
		}
	}
	if len(names) < 55 {
		t.Errorf("only %d operations", len(names))
	}
}

func TestVersion(t *testing.T) {
	for given, want := range map[string]string{"1.2.3": "1.2.3", `"quoted"`: `"quoted"`, "": "dev"} {
		raw, err := Document(given)
		noError(t, err)
		var document struct{ Info struct{ Version string } }
		if err := json.Unmarshal(raw, &document); err != nil || document.Info.Version != want {
			t.Errorf("%q: %+v, %v", given, document, err)
		}
	}
}

// TestSharedSchemasAreComponents: a schema or a problem that several operations share is a component, which they refer to.
func TestSharedSchemasAreComponents(t *testing.T) {
	document, found := parsed(t), map[string]string{}
	walk(document, "", func(at string, o map[string]any) {
		raw, err := json.Marshal(o["schema"])
		noError(t, err)
		if other, ok := found[string(raw)]; ok && len(raw) > 200 {
			t.Errorf("%s and %s have the same schema", other, at)
		}
		found[string(raw)] = at
	})
	walk(document["paths"], "/paths", func(at string, o map[string]any) {
		if o["application/problem+json"] != nil {
			t.Errorf("%s is not a reference", at)
		}
	})
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// noError ends the test if something failed that the test needs and does not examine.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
