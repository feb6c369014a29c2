package handler

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

// TestFormsOfText: what looks the same gets the same form, and what can't be seen or read is refused with the character that is wrong.
func TestFormsOfText(t *testing.T) {
	t.Parallel()
	const alone, joined = "must not have invisible characters alone: ", "must not have an invisible character: "
	for _, c := range []struct{ field, text, want, wrong string }{
		{"name", "", "", ""},
		{"name", " \t\n\u00a0\u3000", "", ""},
		{"name", "\ufeff 김\u3000 민수\u200b ", "김 민수", ""},
		{"name", "\u1100\u1175\u11b7\u3164민수", "김 민수", ""},
		{"name", "Kim\r\nMin\u2028Su", "Kim Min Su", ""},
		{"name", "👩\u200d🔧 ❤\ufe0f 1\ufe0f\u20e3 🇰🇷 नि\u200dक", "👩\u200d🔧 ❤\ufe0f 1\ufe0f\u20e3 🇰🇷 नि\u200dक", ""},
		{"name", "🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f", ""},
		{"name", "\u3164", "", alone + "U+3164 at 1"},
		{"name", " \u200b", "", alone + "U+200B at 2"},
		{"name", "\ufeff", "", alone + "U+FEFF at 1"},
		{"name", "\u2800\u2800", "", alone + "U+2800 at 1"},
		{"name", "\u115f\u1160", "", alone + "U+115F at 1"},
		{"name", "\u00ad", "", alone + "U+00AD at 1"},
		{"name", "\u180e", "", alone + "U+180E at 1"},
		{"name", "\ufe0f", "", alone + "U+FE0F at 1"},
		{"name", "\u0301\u0301", "", alone + "U+0301 at 1"},
		{"name", "\U000e0041", "", alone + "U+E0041 at 1"},
		{"name", "\u2065\ufe0f", "", alone + "U+2065 at 1"},
		{"name", "\ufff0", "", alone + "U+FFF0 at 1"},
		{"site_address", "\U000e0080", "", alone + "U+E0080 at 1"},
		{"region", "\U000e0fff", "", alone + "U+E0FFF at 1"},
		{"name", "\U0001d159", "", alone + "U+1D159 at 1"},
		{"name", "\U00013441", "", alone + "U+13441 at 1"},
		{"name", "Kim\ufff0", "", joined + "U+FFF0 at 4"},
		{"name", "\ufffd\ufffd\ufffd", "", "must not have a character that stands for a lost one: U+FFFD at 1"},
		{"name", "evil\u202e", "", "must not have a character that changes the direction of text: U+202E at 5"},
		{"name", "a\u2066b\u2069", "", "must not have a character that changes the direction of text: U+2066 at 2"},
		{"name", "a\x00", "", "must not have a control character: U+0000 at 2"},
		{"name", "a\ue000", "", "must not have a character that has no meaning elsewhere: U+E000 at 2"},
		{"name", "Kim\u200bMin", "", joined + "U+200B at 4"},
		{"name", "Kim \u200dMin", "", joined + "U+200D at 5"},
		{"name", "K\u034fim", "", joined + "U+034F at 2"},
		{"name", "K\U000e0041im", "", joined + "U+E0041 at 2"},
		{"site_address", "㎡ ①\u2011２", "㎡ ①\u2011２", ""},
		{"note", "\ufeff a  b\r\nc\rd\u2029\te\u3164\n", "a  b\nc\nd\n\te", ""},
		{"note", "\u202ea", "", "must not have a character that changes the direction of text: U+202E at 1"},
		{"vehicle_class", "４５ｍ\u2011ｶﾞ", "45m-ガ", ""},
		{"vehicle_class", "45м", "45м", ""},
		{"vehicle_class", "a\u0441eж", "", "must not have a letter that looks like a Latin one: U+0441 at 2"},
		{"vehicle_class", "a\u0441e", "ace", ""},
		{"vehicle_class", "5\u0422", "5T", ""},
		{"vehicle_class", "АВЕКМНОРСТУХ аеорсух", "ABEKMHOPCTYX aeopcyx", ""},
		{"region", "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", ""},
		{"region", "Москва", "Москва", ""},
		{"name", "5\u0422", "5\u0422", ""},
		{"vehicle_class", "카고·5 카고ㆍ5 카고・5 카고‧5 카고•5", "카고·5 카고·5 카고·5 카고·5 카고·5", ""},
		{"region", " \u1109\u1165\u110b\u116e\u11af\u00a0 강남/서초\n", "서울 강남/서초", ""},
		{"region", "Seoul", "Seoul", ""},
		{"app_version", strings.Repeat("가", 65), strings.Repeat("가", 64), ""},
		{"app_version", "1\u202e2", "", ""},
		{"q", "\u202aKim\u200b", " Kim ", ""},
		{"q", "\u1100\u1175\u11b7", "김", ""},
		{"q", "\x00", "", "must be text"},
		{"q", "\xff", "", "must be text"},
		{"region", "\xff", "", "must be text in UTF-8"},
	} {
		clean, wrong := cleanText(c.field, c.text)
		if wrong != c.wrong || wrong == "" && clean != c.want {
			t.Errorf("%s %+q: %+q, %q; want %+q, %q", c.field, c.text, clean, wrong, c.want, c.wrong)
		}
	}
	const separators = ", ， 、 ﹑ ; ； | ｜ · ㆍ ・ ･ \t \n \u2028 " +
		"\u037e \ufe54 \ufe14 \ufe10 \ufe50 \ufe11 \u0387 \u119e \u2e31 \u22ef \u00a6 \u2758"
	for between := range strings.SplitSeq(separators, " ") {
		want := fmt.Sprintf("must not have several regions, which are items of a list each: U+%04X at 3", []rune(between)[0])
		_, wrong := cleanText("regions", "서울"+between+"부산")
		testkit.Equal(t, between, want, wrong)
	}
}

func TestPhoneNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":               "",
		"+8201012345678": "+821012345678", "\u202a+82 10-1234-5678\u202c": "+821012345678", "\u200e010\u20111234\u20115678": "+821012345678",
		"010.1234.5678": "+821012345678", "(010) 1234 5678": "+821012345678", "010ㅡ1234ㅡ5678": "+821012345678",
		"０１０－１２３４－５６７８": "+821012345678", "＋82 10 1234 5678": "+821012345678", "٠١٠١٢٣٤٥٦٧٨": "+821012345678", "+८२१०१२३४५६७८": "+821012345678",
		"00821012345678": "+821012345678", "0082 (0)10 1234 5678": "+821012345678", "82-10-1234-5678": "+821012345678", "+82 (0)10-1234-5678": "+821012345678",
		"tel:+82-10-1234-5678": "+821012345678", "TEL:010-1234-5678": "+821012345678", "1012345678": "+821012345678", "+82\u201310\u20141234\u22125678": "+821012345678",
		"02-123-4567": "+8221234567", "02)1234-5678": "+82212345678", "031-123-4567": "+82311234567", "0505-123-4567": "+825051234567", "1588-1234": "+8215881234",
		"0303-1234-5678": "+8230312345678", "080-123-4567": "+82801234567", "070-1234-5678": "+827012345678",
		"064-123-4567": "+82641234567",
		"011-234-5678": "+82112345678", "+44 (0)20 7946 0958": "+442079460958", "+39 06 1234567": "+39061234567", "+1 415 555 0123": "+14155550123", "+225 07 12345678": "+2250712345678",
		"+82 10 1234 567": "+82101234567", // written with a +, any length of E.164 is taken
	} {
		if number, wrong := phoneNumber(text); number != want || wrong != "" {
			t.Errorf("%+q: %s, %q; want %s", text, number, wrong, want)
		}
	}
	for text, want := range map[string]string{
		"\u200e":                         phoneExample,
		"010-1234-5678 ext. 5":           phoneExample + ", without an extension",
		"+821012345678;ext=5":            phoneExample + ", without an extension",
		"02-1234-5678 (내선 3)":            phoneExample + ", without an extension",
		"0l0-1234-5678":                  phoneExample + "; it has U+006C",
		"010-1234-5678, 010-2345-6789":   phoneExample + ", without an extension",
		"010+1234":                       phoneExample + "; it has U+002B",
		"123":                            phoneExample + "; it begins with neither 0 nor + and the code of a country",
		"010-12":                         phoneExample + "; it has 6 digits with the code of the country",
		"+82 10 1234 5678 1234 5":        phoneExample + "; it has 17 digits with the code of the country",
		"+0082 10 1234 5678":             phoneExample + "; no country has the code that it begins with",
		"010/1234/5678":                  phoneExample + "; it has U+002F, as several numbers have: write one",
		"02-123-4567/8":                  phoneExample + "; it has U+002F, as several numbers have: write one",
		"02-123-4567~8":                  phoneExample + "; it has U+007E, as several numbers have: write one",
		"02-123-4567\uff5e8":             phoneExample + "; it has U+007E, as several numbers have: write one",
		strings.Repeat("0", maxBody):     phoneExample + "; it begins with 00: write it with + and the country's code",
		"+" + strings.Repeat("1", 65000): phoneExample + "; it has 65000 digits with the code of the country",
	} {
		if _, wrong := phoneNumber(text); wrong != want {
			t.Errorf("%.60q: %q, want %q", text, wrong, want)
		}
	}
	const abroad = "; it begins with 00: write it with + and the country's code"
	for _, text := range []string{"001-82-10-1234-5678", "002-82-10-1234-5678", "00700-82-10-1234-5678",
		"00300 82 10 1234 5678", "0014155550123"} {
		_, wrong := phoneNumber(text)
		testkit.Equal(t, text, phoneExample+abroad, wrong)
	}
	const length = "; 010 has 8 more digits, and other codes of Korea have 7 or 8"
	for _, text := range []string{
		"010-1234-567", "010-1234-56789", "0082 10 1234 567", "02-12-3456", "031-123-456", "0505-123-456789", "070-123-45678 9",
	} {
		_, wrong := phoneNumber(text)
		testkit.Equal(t, text, phoneExample+length, wrong)
	}
}

// TestLanguages: a locale of any system is the language that it begins with, or none.
func TestLanguages(t *testing.T) {
	t.Parallel()
	for locale, want := range map[string]string{
		"": "", "C": "", "POSIX": "", "und": "", "한국어": "", "korean": "", "*": "", "5": "", strings.Repeat("x", 200): "", "i-klingon": "",
		"ko": "ko", "KO_kr": "ko-KR", "ko_KR@calendar=gregorian": "ko-KR", "en_US.UTF-8": "en-US", "zh_CN_#Hans": "zh-Hans-CN", "sr__#Latn": "sr-Latn",
		"ko-KR-u-ca-gregory-nu-latn-hc-h23-ms-metric": "ko-KR", "zh-hant-hk": "zh-Hant-HK", "ES-419": "es-419", "iw": "iw", "in_ID": "in-ID", "no": "no", "fil-PH": "fil-PH",
		" ko-KR\u200b": "ko-KR", "ko\u2010KR": "ko-KR", "ｋｏ": "ko", "ko KR": "ko-KR", "de-DE-1996": "de-DE", "ca_ES@valencia": "ca-ES", "th_TH_TH_#u-nu-thai": "th-TH",
	} {
		testkit.Equal(t, locale, want, languageTag(locale))
	}
}

// TestTextOfRequests: each way into the service brings text into the form, and names the fields that it refuses.
func TestTextOfRequests(t *testing.T) {
	w := newWorld(t)
	driver := func(changes ...string) string {
		return fields(map[string]any{"name": "Kim", "phone": "010-0000-0000", "regions": []string{" ｓｅｏｕｌ"}, "vehicle_class": "45m\u3000"}, changes...)
	}
	made := w.call("POST", "/v1/admin/drivers", key, driver()).want(201, "phone", "+821000000000", "vehicle_class", "45m")
	path := "/v1/admin/drivers/" + fmt.Sprint(made.at("id"))
	w.call("PATCH", path, key, `{"name":"\ufeff이\u00a0 영희","phone":"(010) 1234 5678","locale":"ko_KR.UTF-8"}`).
		want(200, "name", "이 영희", "phone", "+821012345678", "locale", "ko-KR")
	bulk := w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+driver()+","+driver(`"name":"\u3164"`, `"phone":"x"`)+","+driver(`"regions":["seoul","a;b"]`, `"locale":"korean"`)+`]}`)
	for _, field := range []string{"drivers[1].name", "drivers[1].phone", "drivers[2].regions[1]", "drivers[2].locale"} {
		w.refused("bulk", bulk, 422, "VALIDATION_FAILED").hasField(field)
	}
	for body, field := range map[string]string{`{"name":"\u202e"}`: "name", `{"regions":["서울、부산"]}`: "regions[0]", `{"phone":"5"}`: "phone", `{"name":"\ud83d"}`: "name", `{"regions":["\udc00x"]}`: "regions[0]"} {
		w.refused(body, w.call("PATCH", path, key, body), 422, "VALIDATION_FAILED").hasField(field)
	}
	for _, name := range []string{"region", "vehicle_class", "site_address", "note", "external_id"} {
		for _, to := range []string{"", "/preview"} {
			w.refused(name, w.call("POST", "/v1/admin/dispatches"+to, key, order(1, fmt.Sprintf("%q:\"\u3164\"", name))), 422, "VALIDATION_FAILED").hasField(name)
		}
	}
	id := w.dispatch(1, `"region":"\uff53eoul "`, `"external_id":"ＥＲＰ‑1"`)
	w.call("GET", "/v1/admin/dispatches/"+id, key, "").want(200, "region", "seoul", "external_id", "ERP-1")
	w.refused("the same number", w.call("POST", "/v1/admin/dispatches", key, order(1, `"external_id":"ERP-1"`)), 409, "DUPLICATE_EXTERNAL_ID")
	w.refused("a list", w.call("PATCH", "/v1/admin/dispatches/"+id, key, `{"region":"서울，부산"}`, "If-Match", `"1"`), 422, "VALIDATION_FAILED").hasField("region")
	w.refused("a reason", w.call("POST", "/v1/admin/dispatches/"+id+"/cancel", key, `{"reason_code":"\u202ex"}`, "If-Match", `"1"`), 422, "VALIDATION_FAILED").hasField("reason_code")
	w.refused("a key's name", w.call("POST", "/v1/admin/api-keys", key, `{"name":"\u2800","role":"viewer"}`), 422, "VALIDATION_FAILED").hasField("name")
	webhook := `{"url":"https://example.com/x","events":["*"],"description":"a\u0007"}`
	w.refused("a webhook", w.call("POST", "/v1/admin/webhooks", key, webhook), 422, "VALIDATION_FAILED").hasField("description")
	for query, want := range map[string]int{"dispatches?region=%EF%BD%93eoul%20": 1, "dispatches?q=%E2%80%AAERP-1": 1, "drivers?region=seoul%E2%80%8B&vehicle_class=%EF%BC%94%EF%BC%95m": 1} {
		w.call("GET", "/v1/admin/"+query, key, "").want(200).wantItems(want)
	}
	for _, q := range []string{"010-1234-5678", "０１０１２３４", "+82 (0)10 1234 5678", "0082-10-1234-5678", "+8201012345678", "\u202a+821012345678\u202c", "1234-5678"} {
		w.call("GET", "/v1/admin/drivers?q="+url.QueryEscape(q), key, "").want(200).wantItems(1)
	}
	w.refused("a list", w.call("GET", "/v1/admin/drivers?region="+url.QueryEscape("서울、부산"), key, ""), 422, "VALIDATION_FAILED").hasField("region")
	w.noErrorLogged()
}

// TestOneNumberTwice: a second driver with a phone number, however it is written, is refused with the first one, unless both share it.
func TestOneNumberTwice(t *testing.T) {
	w := newWorld(t)
	driver := func(phone string, more ...string) string {
		return fields(map[string]any{"name": "Kim", "phone": phone, "regions": []string{"seoul"}, "vehicle_class": "45m", "unique_phone": true}, more...)
	}
	first := fmt.Sprint(w.call("POST", "/v1/admin/drivers", key, driver("+821012345678")).want(201).at("id"))
	other := "/v1/admin/drivers/" + fmt.Sprint(w.call("POST", "/v1/admin/drivers", key, driver("010-2345-6789")).want(201).at("id"))
	for _, r := range []reply{
		w.call("POST", "/v1/admin/drivers", key, driver("010-1234-5678")), w.call("PATCH", other, key, `{"phone":"(010) 1234-5678","unique_phone":true}`),
	} {
		w.refused("twice", r, 409, "DUPLICATE_PHONE").want(409, "driver_id", first).hasField("phone")
	}
	bulk := w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+driver("010-3333-4444")+","+driver("0082 10 1234 5678")+","+driver("+82 10 3333 4444")+`]}`)
	r := w.refused("in bulk", bulk, 409, "DUPLICATE_PHONE").want(409, "driver_id", first)
	for i := range 3 {
		r.hasField(fmt.Sprintf("drivers[%d].phone", i))
	}
	bulk = w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+driver("010-3333-4444")+","+driver("010-3333-4444")+`]}`)
	w.refused("twice in bulk", bulk, 409, "DUPLICATE_PHONE").want(409, "driver_id", nil).hasField("drivers[1].phone")
	w.call("GET", "/v1/admin/drivers", key, "").want(200).wantItems(2)
	w.call("PATCH", other, key, `{"name":"Lee","phone":"010 2345 6789"}`).want(200)
	w.call("PATCH", other, key, `{"phone":"+821012345678"}`).want(200)
	w.call("PATCH", other, key, `{"phone":"010 2345 6789"}`).want(200)
	w.call("POST", "/v1/admin/drivers", key, driver("010 1234 5678", `"unique_phone":false`)).want(201, "same_phone", first)
	bulk = w.call("POST", "/v1/admin/drivers/bulk", key, `{"drivers":[`+driver("010 2345-6789", `"unique_phone":false`)+","+driver("010-5555-4444", `"unique_phone":false`)+`]}`)
	made := items(bulk.want(200))
	wantMembers(t, "a driver with another's number", made[0], "same_phone", strings.TrimPrefix(other, "/v1/admin/drivers/"))
	wantMembers(t, "a driver with a number of their own", made[1], "same_phone", nil)
}
