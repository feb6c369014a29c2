package handler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/unicode/norm"
)

// Each text of a request comes through here: it gets the one form in which it is stored and compared, so that what looks the same is the
// same, or it is refused with the character that is wrong in it.

// textForms are the forms of the fields, in bodies and in queries, that are not a line of text.
var textForms = map[string]func(string) (clean, wrong string){
	"note": cleanNote, "phone": phoneNumber, "locale": cleanLocale, "app_version": cleanAppVersion,
	"key": untouched, "push_token": untouched, "url": untouched,
	"external_id": cleanCode, "reason_code": cleanCode, "vehicle_class": cleanCode,
	"region": cleanRegion, "regions": cleanRegion, "q": cleanQuery,
}

// cleanText returns the form of a field's text, or what is wrong with it.
func cleanText(field, text string) (clean, wrong string) {
	if form := textForms[field]; form != nil {
		return form(text)
	}
	return cleanLine(text)
}

// textReader reads the strings of one body, and collects what is wrong with them.
type textReader struct{ wrong []fieldError }

func (t *textReader) read(dec *jsontext.Decoder, to *string) error {
	if dec.PeekKind() != jsontext.KindString {
		return errors.ErrUnsupported // as it is read by default
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	path := fieldPath(dec.StackPointer())
	name, _, _ := strings.Cut(path[strings.LastIndexByte(path, '.')+1:], "[")
	clean, wrong := cleanText(name, token.String())
	if wrong != "" {
		t.wrong = append(t.wrong, fieldError{path, wrong})
	}
	*to = clean
	return nil
}

// and adds the errors of the validation, but for those of texts that are wrong already.
func (t *textReader) and(err error) error {
	if len(t.wrong) == 0 {
		return err
	}
	all := &validationError{fields: t.wrong}
	if others, ok := err.(*validationError); ok { //nolint:errorlint // it is not wrapped
		for _, f := range others.fields {
			if !slices.ContainsFunc(t.wrong, func(w fieldError) bool { return w.Field == f.Field }) {
				all.fields = append(all.fields, f)
			}
		}
	}
	return all
}

// untouched is the form of what programs make, and compare byte by byte.
func untouched(text string) (clean, wrong string) { return text, "" }

// cleanLine is the form of names, addresses and the like: composed, with one space for each white space.
func cleanLine(text string) (clean, wrong string) {
	if wrong = wrongIn(text); wrong != "" {
		return text, wrong
	}
	return norm.NFC.String(strings.Join(strings.FieldsFunc(trimmedText(text), isBlank), " ")), ""
}

// cleanNote is the form of text of several lines.
func cleanNote(text string) (clean, wrong string) {
	if wrong = wrongIn(text); wrong != "" {
		return text, wrong
	}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
	text = strings.Map(func(r rune) rune {
		if isBlank(r) && !unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
	return norm.NFC.String(trimmedText(text)), ""
}

// looksLatin has the Cyrillic and Greek letters that look like Latin ones.
var looksLatin = strings.NewReplacer(
	"А", "A", "В", "B", "Е", "E", "К", "K", "М", "M", "Н", "H",
	"О", "O", "Р", "P", "С", "C", "Т", "T", "У", "Y", "Х", "X",
	"а", "a", "е", "e", "о", "o", "р", "p", "с", "c", "у", "y", "х", "x",
	"Α", "A", "Β", "B", "Ε", "E", "Ζ", "Z", "Η", "H", "Ι", "I",
	"Κ", "K", "Μ", "M", "Ν", "N", "Ο", "O", "Ρ", "P", "Τ", "T", "Υ", "Y", "Χ", "X",
)

// cleanCode is the form of what is compared: of usual width, with one hyphen for all dashes and one middle dot for all of them, and with
// Latin letters for those that look like them, unless the text is of another alphabet.
func cleanCode(text string) (clean, wrong string) {
	if clean, wrong = cleanLine(text); wrong != "" {
		return text, wrong
	}
	clean = strings.Map(func(r rune) rune {
		switch {
		case isDash(r):
			return '-'
		case strings.ContainsRune("\u119e・‧•∙⋅", r):
			return '·'
		}
		return r
	}, norm.NFKC.String(clean))
	other := func(r rune) bool { return unicode.In(r, unicode.Cyrillic, unicode.Greek) }
	if latin := looksLatin.Replace(clean); !strings.ContainsFunc(latin, other) {
		return latin, ""
	}
	if strings.ContainsFunc(clean, func(r rune) bool { return unicode.Is(unicode.Latin, r) }) {
		return clean, firstWrong(text, "a letter that looks like a Latin one", func(r rune) bool {
			return unicode.Is(unicode.Cyrillic, r) || strings.ContainsRune("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρυ", r)
		})
	}
	return clean, ""
}

// cleanRegion is the form of one region. What looks like a list would be a region that nobody has.
func cleanRegion(text string) (clean, wrong string) {
	between := func(r rune) bool {
		return strings.ContainsAny(norm.NFKC.String(string(r)), "\t\n\v\f\r\u0085\u2028\u2029,;|、،؛·・‧∙⋅•\u119e\u2e31\u22ef\u00a6\u2758")
	}
	if wrong = firstWrong(strings.TrimSpace(text), "several regions, which are items of a list each", between); wrong != "" {
		return text, wrong
	}
	return cleanCode(text)
}

// cleanQuery is the form of what is searched for. It refuses only what is no text: the rest is found or not.
func cleanQuery(text string) (clean, wrong string) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return text, "must be text"
	}
	return norm.NFC.String(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) && !isJoiner(r) {
			return ' ' // and not nothing: without a text, everything would be found
		}
		return r
	}, text)), ""
}

// cleanAppVersion leaves out what can't be stored: a device is not refused for it.
func cleanAppVersion(text string) (clean, wrong string) {
	if clean, wrong = cleanLine(text); wrong != "" {
		return "", ""
	}
	return string([]rune(clean)[:min(maxAppVersion, utf8.RuneCountInString(clean))]), ""
}

// cleanLocale is the language that a locale begins with, its script and its region, as in BCP 47. Systems write more than that, each in its
// own way: ko_KR.UTF-8, zh_CN_#Hans, ko-KR-u-ca-gregory. What names no language stays as it is.
func cleanLocale(text string) (clean, wrong string) {
	tag := languageTag(text)
	if tag == "" {
		return text, ""
	}
	return tag, ""
}

func languageTag(locale string) string {
	locale, _, _ = strings.Cut(trimmedText(norm.NFKC.String(locale)), "@")
	locale, _, _ = strings.Cut(locale, ".")
	parts := strings.FieldsFunc(locale, func(r rune) bool { return r == '_' || r == '#' || r == ' ' || isDash(r) })
	if len(parts) == 0 || !isWord(parts[0], 'a', 'z', 2, 3) || strings.EqualFold(parts[0], "und") {
		return ""
	}
	language, script, region := strings.ToLower(parts[0]), "", ""
	for _, part := range parts[1:] {
		switch {
		case script == "" && isWord(part, 'a', 'z', 4, 4):
			script = "-" + strings.ToUpper(part[:1]) + strings.ToLower(part[1:])
		case region == "" && (isWord(part, 'a', 'z', 2, 2) || isWord(part, '0', '9', 3, 3)):
			region = "-" + strings.ToUpper(part)
		default:
			return language + script + region
		}
	}
	return language + script + region
}

// isWord reports whether a text is of from to to letters from low to high, in any case.
func isWord(text string, low, high byte, from, to int) bool {
	for _, b := range []byte(strings.ToLower(text)) {
		if b < low || b > high {
			return false
		}
	}
	return from <= len(text) && len(text) <= to
}

// wrongIn returns what no text may have, "" for nothing.
func wrongIn(text string) string {
	if !utf8.ValidString(text) {
		return "must be text in UTF-8"
	}
	isNoSpace := func(r rune) bool { return !unicode.IsSpace(r) }
	if !strings.ContainsFunc(text, isVisible) && strings.ContainsFunc(text, isNoSpace) {
		return firstWrong(text, "invisible characters alone", isNoSpace)
	}
	for _, kind := range []struct {
		name string
		of   func(r rune) bool
	}{
		{"a control character", func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }},
		{"a character that changes the direction of text", func(r rune) bool {
			return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
		}},
		{"a character that stands for a lost one", func(r rune) bool { return r == utf8.RuneError }},
		{"a character that has no meaning elsewhere", func(r rune) bool {
			return unicode.Is(unicode.Co, r) || r&0xFFFE == 0xFFFE || r >= 0xFDD0 && r <= 0xFDEF
		}},
	} {
		if wrong := firstWrong(text, kind.name, kind.of); wrong != "" {
			return wrong
		}
	}
	return wrongFormat(text)
}

// wrongFormat refuses the invisible characters within a text, but for a joiner between two others, as in emoji and Indic words, and for the
// tags of a flag.
func wrongFormat(text string) string {
	all := []rune(text)
	first := slices.IndexFunc(all, isVisible)
	last := len(all) - 1
	for last >= 0 && isTrimmed(all[last]) {
		last--
	}
	for i := first + 1; i <= last; i++ {
		r, before := all[i], all[i-1]
		isTag := func(r rune) bool { return r >= 0xE0020 && r <= 0xE007F }
		switch {
		case !isIgnorable(r):
		case isJoiner(r) && !isTrimmed(before) && !isTrimmed(all[i+1]):
		case isTag(r) && (before == '\U0001F3F4' || isTag(before)):
		default:
			return fmt.Sprintf("must not have an invisible character: U+%04X at %d", r, i+1)
		}
	}
	return ""
}

// firstWrong returns the message about the first character of a kind, "" if the text has none.
func firstWrong(text, kind string, of func(r rune) bool) string {
	n := 0
	for _, r := range text {
		if n++; of(r) {
			return fmt.Sprintf("must not have %s: U+%04X at %d", kind, r, n)
		}
	}
	return ""
}

// trimmedText is the text without what does not show around it: white space, and marks that programs put there, such as a byte order mark.
func trimmedText(text string) string { return strings.TrimFunc(text, isTrimmed) }

func isTrimmed(r rune) bool {
	return isBlank(r) || isJoiner(r) || strings.ContainsRune("\u200b\u200e\u200f\u061c\u2060\ufeff\u00ad\u180e", r)
}

// isBlank reports whether a character looks like a space: some that do are letters or symbols.
func isBlank(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune("\u115f\u1160\u3164\uffa0\u2800", r)
}

func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// isIgnorable reports whether a character shows nothing, not even a space: by its property, or because it is an empty sign.
func isIgnorable(r rune) bool {
	return !isBlank(r) && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point) ||
		strings.ContainsRune("\U0001d159\U00013441\U00013442", r)
}

func isVisible(r rune) bool {
	return !isTrimmed(r) && !isIgnorable(r) && !unicode.In(r, unicode.M, unicode.Cc, unicode.Co, unicode.Z)
}

// isDash reports whether a character is a straight dash.
func isDash(r rune) bool {
	return unicode.Is(unicode.Pd, r) && r != '〜' && r != '〰' || strings.ContainsRune("\u2043\u2212", r)
}
