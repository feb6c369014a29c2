package handler

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// patch is the body of a PATCH. Its fields have the meaning that they have in T, a request for a new resource. A field that is not given
// stays as it is; null clears an optional one.
type patch[T any] struct {
	to T
	// given has the fields that the body gives, by their names in JSON.
	given map[string]jsontext.Value
}

// readPatch decodes the body strictly. It refuses null but for the fields that it clears, and leaves the validation to the caller.
func readPatch[T any](c echo.Context, nullable ...string) (p patch[T], err error) {
	body, err := readBody(c, maxBody)
	if err != nil {
		return p, err
	}
	to, texts, err := parse[T](body)
	if err != nil {
		return p, err
	}
	if p.to, body = to, trimmed(body); len(body) > 0 {
		if err := json.Unmarshal(body, &p.given); err != nil {
			return p, err // it was parsed before
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.given)) {
		if p.null(name) && !slices.Contains(nullable, name) {
			texts.wrong = append(texts.wrong, fieldError{name, "must not be null"})
		}
	}
	return p, texts.and(nil)
}

func (p *patch[T]) null(name string) bool { return string(p.given[name]) == "null" }

// fields returns the names in Go of the fields that are given.
func (p *patch[T]) fields() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); p.given[name] != nil {
			names = append(names, f.Name)
		}
	}
	return names
}

// check validates the given fields like those of a new resource.
func (p *patch[T]) check() error {
	fields := p.fields()
	if len(fields) == 0 {
		return nil
	}
	return asValidationError(validation.StructPartial(p.to, fields...))
}

// onto returns the present resource, as a request, with the given fields.
func (p *patch[T]) onto(present T) T {
	from, to := reflect.ValueOf(p.to), reflect.ValueOf(&present).Elem()
	for _, name := range p.fields() {
		to.FieldByName(name).Set(from.FieldByName(name))
	}
	return present
}
