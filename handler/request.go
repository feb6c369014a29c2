package handler

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-playground/validator/v10"
	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

const (
	maxBody = 64 << 10
	// maxBulkBody is enough for 1,000 drivers.
	maxBulkBody = 1 << 20
)

// strictJSON refuses unknown and duplicate names, names in another case, and anything but well-formed JSON in UTF-8.
var strictJSON = json.JoinOptions(json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(false),
	jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false))

// read decodes the body strictly and validates it. An empty body is read as {}.
func read[T any](c echo.Context, limit int64) (T, error) {
	body, err := readBody(c, limit)
	if err != nil {
		return *new(T), err
	}
	return decode[T](body)
}

// readOptional is read for a request that is complete without a body: a client may also send null for it.
func readOptional[T any](c echo.Context) (T, error) {
	body, err := readBody(c, maxBody)
	if err != nil || string(trimmed(body)) == "null" {
		return *new(T), err
	}
	return decode[T](body)
}

func readBody(c echo.Context, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Response().Writer, c.Request().Body, limit))
	if err != nil {
		return nil, decodeError(err)
	}
	return body, nil
}

// trimmed is the body without the white space of JSON around it.
func trimmed(body []byte) []byte { return bytes.Trim(body, " \t\r\n") }

// decode is read for a body that was read.
func decode[T any](body []byte) (T, error) {
	var v T
	body = trimmed(body)
	if bytes.Equal(body, []byte("null")) { // the decoder would accept it as an empty object
		return v, fmt.Errorf("%w: want a JSON object", errMalformed)
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &v, strictJSON); err != nil {
			return v, decodeError(err)
		}
	}
	return v, validate(v)
}

func decodeError(err error) error {
	var (
		tooLarge *http.MaxBytesError
		wrong    *json.SemanticError
		syntax   *jsontext.SyntacticError
	)
	switch {
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: at most %d bytes", errTooLarge, tooLarge.Limit)
	case errors.Is(err, json.ErrUnknownName):
		errors.As(err, &wrong)
		return invalidField(fieldPath(wrong.JSONPointer), "is not a field of this request")
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return invalidField(fieldPath(syntax.JSONPointer), "is given more than once")
	case errors.As(err, &wrong) && wrong.JSONPointer != "":
		return invalidField(fieldPath(wrong.JSONPointer), typeMessage(wrong))
	}
	return fmt.Errorf("%w: want a JSON object in UTF-8", errMalformed)
}

// fieldPath formats a JSON pointer as the validation does: drivers[2].name.
func fieldPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	return b.String()
}

func typeMessage(wrong *json.SemanticError) string {
	switch {
	case wrong.JSONKind == jsontext.KindString && wrong.GoType == reflect.TypeFor[time.Time]():
		return "must be a time like 2026-11-21T09:00:00Z"
	case errors.Is(wrong.Err, strconv.ErrRange) || errors.Is(wrong.Err, strconv.ErrSyntax):
		return "must be a whole number that fits in 64 bits"
	}
	return "must not be a JSON " + kindNames[wrong.JSONKind]
}

var kindNames = map[jsontext.Kind]string{
	jsontext.KindNull: "null", jsontext.KindFalse: "bool", jsontext.KindTrue: "bool", jsontext.KindString: "string",
	jsontext.KindNumber: "number", jsontext.KindBeginObject: "object", jsontext.KindBeginArray: "array",
}

// validationError is errInvalid with a message for each invalid field.
type validationError struct{ fields []fieldError }

func (e *validationError) Error() string { return fmt.Sprintf("invalid: %v", e.fields) }
func (e *validationError) Unwrap() error { return errInvalid }

func invalidField(field, message string) error {
	return &validationError{fields: []fieldError{{Field: field, Message: message}}}
}

var validation = newValidation()

func newValidation() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	for tag, valid := range map[string]validator.Func{
		"tidy": isTidy, "webhook_url": isWebhookURL, "webhook_events": areWebhookEvents, "webhook_event": isWebhookEvent,
	} {
		if err := v.RegisterValidation(tag, valid); err != nil {
			panic(err) // only an empty tag or a nil function is refused
		}
	}
	return v
}

// isTidy accepts text without control characters and without white space around it, as it is compared byte by byte.
func isTidy(f validator.FieldLevel) bool {
	s := f.Field().String()
	return strings.TrimSpace(s) == s && strings.IndexFunc(s, unicode.IsControl) < 0
}

func validate(v any) error { return asValidationError(validation.Struct(v)) }

// asValidationError turns the validator's errors into a validationError.
func asValidationError(err error) error {
	var failed validator.ValidationErrors
	if !errors.As(err, &failed) {
		return err
	}
	invalid := &validationError{}
	for _, f := range failed {
		_, field, _ := strings.Cut(f.Namespace(), ".")
		invalid.fields = append(invalid.fields, fieldError{Field: field, Message: message(f)})
	}
	return invalid
}

func message(f validator.FieldError) string {
	switch f.Tag() {
	case "required":
		return "is required"
	case "required_with":
		return "is required with " + snakeCase(f.Param())
	case "min", "gte":
		return "must be at least " + f.Param() + unit(f)
	case "max", "lte":
		return "must be at most " + f.Param() + unit(f)
	case "gt":
		return "must be more than " + f.Param()
	case "gtfield":
		return "must be after " + snakeCase(f.Param())
	case "e164":
		return "must be a phone number like +821012345678"
	case "iso4217":
		return "must be a currency like KRW"
	case "tidy":
		return "must not have control characters or space around it"
	case "unique":
		return "must not repeat"
	case "webhook_url":
		return "must be a URL like https://example.com/webhooks"
	case "webhook_event":
		return "must be an event like dispatch.accepted"
	case "webhook_events":
		return "must be * alone, or names of events"
	}
	return "is not valid (" + f.Tag() + ")"
}

func unit(f validator.FieldError) string {
	switch f.Kind() {
	case reflect.String:
		return " characters"
	case reflect.Slice:
		return " items"
	}
	return ""
}

func snakeCase(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func dispatchID(c echo.Context) (dispatch.ID, error) { return dispatch.ParseID(c.Param("id")) }

// version returns the version in If-Match, which the change is made for.
func version(c echo.Context) (int, error) {
	header := c.Request().Header.Get("If-Match")
	if header == "" {
		return 0, errNoVersion
	}
	n, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(header, "W/"), `"`))
	if err != nil {
		return 0, dispatch.ErrVersionConflict // not a version of this service
	}
	return n, nil
}

// isGraphic reports whether s is printable ASCII without spaces.
func isGraphic(s string) bool { return isPrintable(s) && !strings.Contains(s, " ") }

// isPrintable reports whether s is printable ASCII.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// patchField is a field of a PATCH. A field that is not given stays unchanged; null clears an optional one.
type patchField[T any] struct {
	given, null bool
	value       T
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. It decodes with the options of the decoder.
func (e *patchField[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	e.given = true
	if dec.PeekKind() == jsontext.KindNull {
		e.null = true
		return dec.SkipValue()
	}
	return json.UnmarshalDecode(dec, &e.value)
}

// set assigns the field to a required value if it is given.
func (e *patchField[T]) set(to *T) {
	if e.given {
		*to = e.value
	}
}

// setOptional assigns the field to an optional value if it is given; null becomes nil.
func (e *patchField[T]) setOptional(to **T) {
	switch {
	case e.null:
		*to = nil
	case e.given:
		*to = &e.value
	}
}
