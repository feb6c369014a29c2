package handler

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// phoneExample is what the messages show.
const phoneExample = "must be a phone number like 010-1234-5678 or +821012345678"

var (
	// extension is how a number within an exchange is written.
	extension = regexp.MustCompile(`(?i)(?:ext(?:ension)?\.?|내선|구내|x|#|;|,)`)
	// countryCode is the calling code of a country. A zero behind it is dialed within the country only, but for the countries of keptZero.
	countryCode = regexp.MustCompile(`^(?:1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|` +
		`(?:2[1-69]|3[578]|42|5[09]|6[7-9]|8[0578]|9[679])\d)`)
	keptZero = regexp.MustCompile(`^(?:39|225|241|242|378|379)`)
	// koreanMobile is a number that a spreadsheet has taken the zero from.
	koreanMobile = regexp.MustCompile(`^1[016-9]\d{7,8}$`)
	// koreanShared is a company's number, which has no area code.
	koreanShared = regexp.MustCompile(`^1[568]\d{6}$`)
	// korean is a Korean number behind the country's code: after 010, an area's code, or no code.
	korean = regexp.MustCompile(`^\+82(?:10\d{8}|(?:2|1[16-9]|[3-6][1-9]|[35]0\d|[678]0)\d{7,8}|1[568]\d{6})$`)
)

// phoneNumber returns the number in E.164, however it is written, or what is wrong with it. One that is written with a + may have any
// length of E.164: programs send them, and people write the numbers at home.
func phoneNumber(text string) (number, wrong string) {
	number, wrong = phoneForm(text)
	_, international, _ := phoneDigits(text)
	if wrong == "" && !international && strings.HasPrefix(number, "+82") && !korean.MatchString(number) {
		return text, phoneExample + "; 010 has 8 more digits, and other codes of Korea have 7 or 8"
	}
	return number, wrong
}

// phoneForm is phoneNumber for a part of a Korean number too. A number without a country's code is a Korean one.
func phoneForm(text string) (number, wrong string) {
	digits, international, wrong := phoneDigits(text)
	if wrong != "" {
		return text, wrong
	}
	switch {
	case digits == "":
		if text == "" {
			return "", "" // "is required" says it
		}
		return text, phoneExample
	case international:
	case strings.HasPrefix(digits, "0082"):
		digits = digits[2:]
	case strings.HasPrefix(digits, "00"):
		return text, phoneExample + "; it begins with 00: write it with + and the country's code"
	case digits[0] == '0':
		digits = "82" + digits
	case koreanMobile.MatchString(digits), koreanShared.MatchString(digits):
		digits = "82" + digits
	case !strings.HasPrefix(digits, "82"):
		return text, phoneExample + "; it begins with neither 0 nor + and the code of a country"
	}
	code := countryCode.FindString(digits)
	if code == "" {
		return text, phoneExample + "; no country has the code that it begins with"
	}
	if !keptZero.MatchString(digits) {
		digits = code + strings.TrimPrefix(digits[len(code):], "0")
	}
	if n := len(digits); n < 8 || n > 15 { // as in E.164
		return text, fmt.Sprintf("%s; it has %d digits with the code of the country", phoneExample, n)
	}
	return "+" + digits, ""
}

// phoneDigits returns the digits of a number as ASCII, and whether a plus sign is before them.
func phoneDigits(text string) (digits string, international bool, wrong string) {
	plain := norm.NFKC.String(text)
	if begin := len("tel:"); len(plain) > begin && strings.EqualFold(plain[:begin], "tel:") {
		plain = plain[begin:]
	}
	if i := extension.FindStringIndex(plain); i != nil && strings.ContainsFunc(plain[:i[0]], unicode.IsDigit) {
		return "", false, phoneExample + ", without an extension"
	}
	var b strings.Builder
	for _, r := range plain {
		switch {
		case unicode.IsDigit(r):
			b.WriteByte(digitOf(r))
		case r == '+' && b.Len() == 0 && !international:
			international = true
		case isTrimmed(r) || isDash(r) || unicode.Is(unicode.Cf, r) || strings.ContainsRune("().[]·ᅳㅡーｰ_'", r):
		case strings.ContainsRune("/~〜∼⁄∕", r):
			return "", false, fmt.Sprintf("%s; it has U+%04X, as several numbers have: write one", phoneExample, r)
		default:
			return "", false, fmt.Sprintf("%s; it has U+%04X", phoneExample, r)
		}
	}
	return b.String(), international, ""
}

// digitOf returns a decimal digit of any script in ASCII: each script has its ten in a row.
func digitOf(r rune) byte {
	zero := r
	for unicode.IsDigit(zero-1) && r-zero < 9 {
		zero--
	}
	return '0' + byte(r-zero)
}
