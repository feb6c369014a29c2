package handler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-playground/validator/v10"
	"github.com/labstack/echo/v4"
)

// strictJSON refuses unknown and duplicate names, names in another case, and anything but well-formed JSON in UTF-8.
var strictJSON = json.JoinOptions(json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(false),
	jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false))

// numbersAndTimes reads them as other encoders write them.
var numbersAndTimes = json.JoinUnmarshalers(
	json.UnmarshalFromFunc(readWhole[int]), json.UnmarshalFromFunc(readWhole[int64]), json.UnmarshalFromFunc(readTime))

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
	body, err := readBody(c, maxSmallBody)
	if err != nil || string(trimmed(body)) == "null" {
		return *new(T), err
	}
	return decode[T](body)
}

// readNothing reads the body of a request without fields.
func readNothing(c echo.Context) error {
	_, err := readOptional[struct{}](c)
	return err
}

// readBody reads a body of at most limit bytes. One that is announced as longer is not read. After an answer that refuses the body, the
// connection is closed.
func readBody(c echo.Context, limit int64) ([]byte, error) {
	if err := checkCoding(c); err != nil {
		return nil, err
	}
	w := c.Response().Writer
	if c.Request().ContentLength > limit {
		closeAfter(w)
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.Request().Body, limit))
	if err != nil {
		if err = bodyError(err); errors.Is(err, errTooLarge) || errors.Is(err, errRateLimited) {
			closeAfter(w)
		}
		return nil, err
	}
	return body, nil
}

// checkCoding refuses a body that is compressed or not in UTF-8. Otherwise the Content-Type does not matter, as curl and browsers send JSON
// under other names.
func checkCoding(c echo.Context) error {
	header := c.Request().Header
	if coding := header.Get(echo.HeaderContentEncoding); coding != "" && !strings.EqualFold(coding, "identity") {
		c.Response().Header().Set(echo.HeaderAcceptEncoding, "identity")
		return fmt.Errorf("%w: send it without Content-Encoding", errMedia)
	}
	_, parameters, _ := mime.ParseMediaType(header.Get(echo.HeaderContentType))
	switch strings.ToLower(parameters["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
		return nil
	}
	return fmt.Errorf("%w: send it in UTF-8", errMedia)
}

// bodyError returns the error for a body that could not be read to its end.
func bodyError(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(large.Limit)
	case errors.Is(err, errRateLimited):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlowBody
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.As(err, new(*net.OpError)):
		return errHungUp
	}
	return fmt.Errorf("%w: %w", errMalformed, err) // such as a chunk without its length
}

// trimmed is the body without the byte order mark and the white space of JSON around it.
func trimmed(body []byte) []byte {
	return bytes.Trim(bytes.TrimPrefix(body, []byte("\ufeff")), " \t\r\n")
}

// decode is read for a body that was read.
func decode[T any](body []byte) (T, error) {
	v, texts, err := parse[T](body)
	if err != nil {
		return v, err
	}
	return v, texts.and(validate(v))
}

// parse is decode without the validation, and returns the reader of its texts, which knows what is wrong with them.
func parse[T any](body []byte) (v T, texts *textReader, err error) {
	body, texts = trimmed(body), &textReader{}
	if string(body) == "null" { // the decoder would accept it as an empty object
		return v, texts, fmt.Errorf("%w: want a JSON object", errMalformed)
	}
	if len(body) > 0 {
		forms := json.JoinUnmarshalers(numbersAndTimes, json.UnmarshalFromFunc(texts.read))
		if err := json.Unmarshal(body, &v, strictJSON, json.WithUnmarshalers(forms)); err != nil {
			return v, texts, decodeError(err)
		}
	}
	return v, texts, nil
}

func decodeError(err error) error {
	var (
		wrong  *json.SemanticError
		syntax *jsontext.SyntacticError
	)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		errors.As(err, &wrong)
		return invalidField(fieldPath(wrong.JSONPointer), "is not a field of this request")
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return invalidField(fieldPath(syntax.JSONPointer), "is given more than once")
	case errors.As(err, &syntax) && strings.Contains(syntax.Error(), "surrogate"):
		return invalidField(fieldPath(syntax.JSONPointer), "must not have half of a surrogate pair, such as \\ud83d alone")
	case errors.As(err, &wrong) && wrong.JSONPointer != "":
		return invalidField(fieldPath(wrong.JSONPointer), typeMessage(wrong))
	}
	return fmt.Errorf("%w: want a JSON object in UTF-8", errMalformed)
}

// readWhole reads a number without a fraction, also if it is written as 350000.0 or 3.5e5. Anything else is left to the decoder.
func readWhole[T int | int64](dec *jsontext.Decoder, to *T) error {
	if dec.PeekKind() != jsontext.KindNumber {
		return errors.ErrUnsupported
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	n, err := parseWhole(string(value))
	*to = T(n)
	return err
}

// parseWhole returns the value of a JSON number that has no fraction. It loses no digit: it moves the decimal point in the text.
func parseWhole(s string) (int64, error) {
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, decimal := strings.Cut(mantissa, ".")
	if !scientific && !decimal {
		return strconv.ParseInt(s, 10, 64)
	}
	digits := strings.TrimRight(whole+fraction, "0")
	if strings.Trim(digits, "-0") == "" {
		return 0, nil
	}
	shift, err := strconv.Atoi(cmp.Or(exponent, "0"))
	zeros := len(whole) + shift - len(digits) // behind the digits
	switch {
	case err != nil || zeros < 0:
		return 0, strconv.ErrSyntax
	case zeros > 19: // more than 64 bits hold
		return 0, strconv.ErrRange
	}
	return strconv.ParseInt(digits+strings.Repeat("0", zeros), 10, 64)
}

// readTime reads a time of RFC 3339, which allows small letters.
func readTime(dec *jsontext.Decoder, to *time.Time) error {
	if dec.PeekKind() != jsontext.KindString {
		return errors.ErrUnsupported
	}
	text, err := dec.ReadToken()
	if err != nil {
		return err
	}
	upper, err := jsontext.AppendQuote(nil, strings.ToUpper(text.String()))
	if err != nil {
		return err
	}
	return json.Unmarshal(upper, to)
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
	case errors.As(wrong.Err, new(*time.ParseError)):
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
		"language": isLanguage, "years": isOfFourDigits, "webhook_url": isWebhookURL, "webhook_events": areWebhookEvents,
		"webhook_event": isWebhookEvent, "graphic": func(f validator.FieldLevel) bool { return isGraphic(f.Field().String()) },
	} {
		if err := v.RegisterValidation(tag, valid); err != nil {
			panic(err) // only an empty tag or a nil function is refused
		}
	}
	return v
}

func isLanguage(f validator.FieldLevel) bool { return languageTag(f.Field().String()) != "" }

// isOfFourDigits checks the year of a time, for which RFC 3339 has four digits.
func isOfFourDigits(f validator.FieldLevel) bool {
	t, ok := f.Field().Interface().(time.Time)
	return ok && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999
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
	case "iso4217":
		return "must be a currency like KRW"
	case "oneof":
		return "must be " + strings.ReplaceAll(f.Param(), " ", " or ")
	case "years":
		return "must be from the year 1 to 9999, in UTC"
	case "graphic":
		return "must be printable ASCII without spaces"
	case "language":
		return "must be a language like ko-KR"
	case "unique":
		return "must not repeat"
	case "webhook_url":
		return "must be a URL like https://example.com/webhooks"
	case "webhook_event":
		return "must be an event like dispatch.accepted"
	case "webhook_events":
		return "must be * alone, or names of events"
	}
	return "is not valid"
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

// on returns a handler of a driver or an admin that calls next with the identifier in the path.
func on[Caller, ID any](
	parse func(string) (ID, error), next func(c echo.Context, caller Caller, id ID) error,
) func(c echo.Context, caller Caller) error {
	return func(c echo.Context, caller Caller) error {
		id, err := parse(c.Param("id"))
		if err != nil {
			return err
		}
		return next(c, caller, id)
	}
}

// ifMatch returns the version in If-Match, which the change is made for: 0 for any version, if there is none and none is required. conflict
// is the error for what is no version of this service.
func ifMatch(c echo.Context, required bool, conflict error) (int, error) {
	header := strings.Join(c.Request().Header.Values("If-Match"), ",")
	anyVersion := header == "" || header == "*"
	switch {
	case required && (anyVersion || strings.Contains(header, ",")):
		return 0, errNoVersion
	case anyVersion:
		return 0, nil
	}
	n, err := strconv.Atoi(opaqueTag(header))
	if err != nil || n < 1 {
		return 0, conflict
	}
	return n, nil
}

// taggedBy matches an ETag. A proxy that compresses an answer may make the ETag weak, or append the name of the coding.
var taggedBy = regexp.MustCompile(`^\s*(?:W/)?"?(.*?)(?:[-;:]+(?:gzip|br|zstd|deflate))?"?\s*$`)

// opaqueTag returns what tells an ETag from others, without quotes and without what a proxy adds.
func opaqueTag(etag string) string { return taggedBy.FindStringSubmatch(etag)[1] }

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
