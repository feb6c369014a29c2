package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"firsttap/internal/openapi"
)

// contract is the OpenAPI document, to compare with what the API does. Objects in it may have no other members than
// those that are documented.
type contract struct {
	document   map[string]any
	operations []*operation
	compiler   *jsonschema.Compiler
	schemas    map[string]*jsonschema.Schema // by JSON pointer
}

// operation is one method of one path.
type operation struct {
	id, method, path string
	spec             map[string]any
	pointer          string
}

func (o *operation) route() string { return o.method + " " + o.path }

const documentURL = "https://firsttap.test/openapi.json"

// documented is the contract, read once: every answer of every test is compared with it.
var documented = sync.OnceValue(func() *contract {
	v := must(jsonschema.UnmarshalJSON(bytes.NewReader(must(openapi.Document("test")))))
	c := &contract{document: v.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	closeObjects(v)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(documentURL, v); err != nil {
		panic(err)
	}
	c.readOperations()
	return c
})

// closeObjects forbids members that a schema does not name.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		_, named := v["properties"].(map[string]any)
		if _, said := v["additionalProperties"]; named && !said && v["type"] != nil {
			v["additionalProperties"] = false
		}
		for _, member := range v {
			closeObjects(member)
		}
	case []any:
		for _, item := range v {
			closeObjects(item)
		}
	}
}

// readOperations compiles all schemas: later, tests of several goroutines read them.
func (c *contract) readOperations() {
	for path, methods := range c.document["paths"].(map[string]any) {
		for method, spec := range methods.(map[string]any) {
			op := &operation{
				method: strings.ToUpper(method), path: path, spec: spec.(map[string]any),
				pointer: "/paths/" + escape(path) + "/" + method,
			}
			op.id = op.spec["operationId"].(string)
			c.operations = append(c.operations, op)
			c.compileContent(op.spec["requestBody"], op.pointer+"/requestBody")
			for status := range op.spec["responses"].(map[string]any) {
				response, pointer := c.response(op, status)
				c.compileContent(response, pointer)
			}
		}
	}
	for kind, field := range map[string]string{"schemas": "", "headers": "/schema"} {
		for name := range c.document["components"].(map[string]any)[kind].(map[string]any) {
			c.compile("/components/" + kind + "/" + name + field)
		}
	}
	// The more literal one first: /drivers/bulk is not a driver's id.
	slices.SortFunc(c.operations, func(a, b *operation) int { return strings.Count(a.path, "{") - strings.Count(b.path, "{") })
}

func escape(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }

func (c *contract) compileContent(holder any, pointer string) {
	h, _ := holder.(map[string]any)
	content, _ := h["content"].(map[string]any)
	for kind := range content {
		c.compile(pointer + "/content/" + escape(kind) + "/schema")
	}
}

func (c *contract) compile(pointer string) {
	c.schemas[pointer] = must(c.compiler.Compile(documentURL + "#" + pointer))
}

// find returns the operation of a request, nil if there is none. Like the router it prefers the path with the fewest parameters.
func (c *contract) find(method, path string) (found *operation) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	for _, op := range c.operations {
		if op.method == method && slices.EqualFunc(strings.Split(op.path, "/"), parts, func(t, part string) bool {
			return t == part || strings.HasPrefix(t, "{") && part != ""
		}) && (found == nil || strings.Count(op.path, "{") < strings.Count(found.path, "{")) {
			found = op
		}
	}
	return found
}

// resolve follows one reference, if v is one.
func (c *contract) resolve(v any) map[string]any {
	o, _ := v.(map[string]any)
	to, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	var found any = c.document
	for _, p := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
		found = found.(map[string]any)[p]
	}
	return found.(map[string]any)
}

// response returns the operation's response of that status and the JSON pointer to it; nil if there is none.
func (c *contract) response(op *operation, status string) (response map[string]any, pointer string) {
	responses := op.spec["responses"].(map[string]any)
	if o, ok := responses[status].(map[string]any); ok && o["$ref"] != nil {
		return c.resolve(o), strings.TrimPrefix(o["$ref"].(string), "#")
	}
	return c.resolve(responses[status]), op.pointer + "/responses/" + status
}

// check compares an answer with the document: status, headers, content type, body. It compares the body of an accepted request,
// too. It does not call Helper, which a fuzz target does not allow.
func (c *contract) check(t testing.TB, method, path, body string, r reply) {
	what := method + " " + path[:min(100, len(path))]
	op := c.find(method, path)
	if op == nil {
		if r.status != 404 && r.status != 405 && (method != "OPTIONS" || r.status != 204) {
			t.Errorf("%s: %d is not documented", what, r.status)
		}
		return
	}
	status := strconv.Itoa(r.status)
	response, pointer := c.response(op, status)
	if response == nil {
		t.Errorf("%s: the document has no %s of %s: %.300s", what, status, op.id, r.raw)
		return
	}
	c.checkHeaders(t, what, op, response, r)
	c.checkContent(t, what+": "+status, pointer, response, r.header.Get("Content-Type"), r.raw)
	if request, _ := op.spec["requestBody"].(map[string]any); r.status < 300 && request != nil && strings.TrimSpace(body) != "" {
		c.checkContent(t, what+" took", op.pointer+"/requestBody", request, "application/json", body)
	}
}

func (c *contract) checkContent(t testing.TB, what, pointer string, holder map[string]any, contentType, body string) {
	content, ok := holder["content"].(map[string]any)
	if !ok {
		if body != "" {
			t.Errorf("%s: a body: %.100s", what, body)
		}
		return
	}
	kind, _, _ := mime.ParseMediaType(contentType)
	if _, ok := content[kind]; !ok {
		t.Errorf("%s: content type %q is not documented", what, contentType)
		return
	}
	if !strings.HasSuffix(kind, "json") {
		return
	}
	if strings.HasPrefix(body, "\x1f\x8b") {
		body = unzipped(t, body)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err == nil {
		err = c.schemas[pointer+"/content/"+escape(kind)+"/schema"].Validate(v)
	}
	if err != nil {
		t.Errorf("%s: %v: %.500s", what, err, body)
	}
}

func (c *contract) checkHeaders(t testing.TB, what string, op *operation, response map[string]any, r reply) {
	headers, _ := response["headers"].(map[string]any)
	for name, header := range headers {
		value := r.header.Get(name)
		spec := c.resolve(header)
		if value == "" {
			if spec["required"] == true {
				t.Errorf("%s: %d without %s", what, r.status, name)
			}
			continue
		}
		to, ok := header.(map[string]any)["$ref"].(string)
		if !ok {
			continue
		}
		var v any = value
		if c.resolve(spec["schema"])["type"] == "integer" {
			v = json.Number(value)
		}
		if err := c.schemas[strings.TrimPrefix(to, "#")+"/schema"].Validate(v); err != nil {
			t.Errorf("%s: %s: %q: %v", what, name, value, err)
		}
	}
}

// checkEvent compares an event of a live stream with the document.
func (c *contract) checkEvent(t testing.TB, path, event, data string) {
	schema := "DriverEvent"
	if strings.HasPrefix(path, "/v1/admin/") {
		schema = "AdminEvent"
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
	if event == "resync" || event == "reconnect" || event == "replaced" {
		if err != nil || fmt.Sprint(v) != "map[]" {
			t.Errorf("%s: %s with %s", path, event, data)
		}
		return
	}
	if err == nil {
		err = c.schemas["/components/schemas/"+schema].Validate(v)
	}
	if err != nil || v.(map[string]any)["type"] != event {
		t.Errorf("%s: %s: %v: %s", path, event, err, data)
	}
}

// hangUp is a client that has had enough after the first bytes.
type hangUp struct {
	*httptest.ResponseRecorder
	hang context.CancelFunc
}

func (h *hangUp) Write(b []byte) (int, error) {
	h.hang()
	return h.ResponseRecorder.Write(b)
}
