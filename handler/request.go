package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-playground/validator/v10"
	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
)

const (
	maxBody = 64 << 10
	// maxBulkBody has room for 1,000 drivers.
	maxBulkBody = 1 << 20
)

// read decodes the body into v, strictly, and validates it. An empty body reads as {}.
func read[T any](c echo.Context, limit int64) (T, error) {
	var v T
	body, err := io.ReadAll(http.MaxBytesReader(c.Response().Writer, c.Request().Body, limit))
	if err != nil {
		return v, decodeError(err)
	}
	// The decoder takes both: one as nothing, the other as U+FFFD.
	if !utf8.Valid(body) || bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return v, fmt.Errorf("%w: want a JSON object in UTF-8", errMalformed)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err = dec.Decode(&v)
	if err == nil {
		_, err = dec.Token()
		if err == nil {
			return v, fmt.Errorf("%w: more than one JSON value", errMalformed)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return v, decodeError(err)
	}
	return v, validate(v)
}

func decodeError(err error) error {
	var (
		tooLarge  *http.MaxBytesError
		wrongType *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: at most %d bytes", errTooLarge, tooLarge.Limit)
	case errors.As(err, &wrongType):
		return invalidField(wrongType.Field, "must not be a JSON "+wrongType.Value)
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalidField(strings.Trim(field, `"`), "is not a field of this request")
	}
	return fmt.Errorf("%w: %s", errMalformed, strings.TrimPrefix(err.Error(), "json: "))
}

// validationError is errInvalid with what is wrong, field by field.
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
	// "tidy" text is printable, without space around it: it is compared byte for byte.
	err := v.RegisterValidation("tidy", func(fl validator.FieldLevel) bool {
		s := fl.Field().String()
		return strings.TrimSpace(s) == s && strings.IndexFunc(s, unicode.IsControl) < 0
	})
	if err != nil {
		panic(err) // only an empty tag or function is refused
	}
	return v
}

func validate(v any) error {
	err := validation.Struct(v)
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
	case "min", "gte":
		return "must be at least " + f.Param() + unit(f)
	case "max", "lte":
		return "must be at most " + f.Param() + unit(f)
	case "gt":
		return "must be more than " + f.Param()
	case "gtfield":
		return "must be after " + snake(f.Param())
	case "e164":
		return "must be a phone number like +821012345678"
	case "iso4217":
		return "must be a currency like KRW"
	case "tidy":
		return "must not have control characters or space around it"
	case "unique":
		return "must not repeat"
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

func snake(field string) string {
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

// version reads If-Match, which names the version that a change is made for.
func version(c echo.Context) (int, error) {
	header := c.Request().Header.Get("If-Match")
	if header == "" {
		return 0, errNoVersion
	}
	n, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(header, "W/"), `"`))
	if err != nil {
		return 0, dispatch.ErrVersionMoved // no version of ours looks like that
	}
	return n, nil
}

const (
	defaultLimit = 50
	maxLimit     = 200
)

// page reads ?limit=&cursor=.
func page(c echo.Context) (dispatch.Page, error) {
	p := dispatch.Page{Limit: defaultLimit, Cursor: c.QueryParam("cursor")}
	if s := c.QueryParam("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxLimit {
			return p, invalidField("limit", fmt.Sprintf("must be a number from 1 to %d", maxLimit))
		}
		p.Limit = n
	}
	return p, nil
}

// status reads ?status=.
func status(c echo.Context) (dispatch.Status, error) {
	s := dispatch.Status(c.QueryParam("status"))
	if s != "" && !s.Valid() {
		return "", invalidField("status", "is not a state of a dispatch")
	}
	return s, nil
}
