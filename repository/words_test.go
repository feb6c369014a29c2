package repository

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/testkit"
)

func TestWordsOfADispatch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("가", 60)
	for _, c := range []struct {
		externalID, address, note string
		want                      []string
	}{
		{"", "", "", nil},
		{"", " -- ", "%_'!?", nil},
		{"ERP-2024/001", "", "", []string{"erp-2024-001", "2024-001", "001", "erp2024001"}},
		{"erp7", "Erp7", "ERP7 7", []string{"erp7", "7"}},
		{"", "서울특별시 강남구 테헤란로 12-3번지", "", []string{"서울특별시", "강남구", "테헤란로", "12-3번지", "3번지"}},
		{"", "(Gate 2), O'Neill's", "call 010-1234-5678!", []string{"gate", "2", "o-neill-s", "neill-s", "s", "call", "010-1234-5678", "1234-5678", "5678"}},
		{"", "Ｓｅｏｕｌ　１２", "\u1112\u1161\u11ab ÜBER Ⅷ", []string{"seoul", "12", "한", "über", "viii"}},
		{"", long, "", []string{long[:3*maxWordLength]}},
	} {
		row := dispatchRow{ExternalID: nullable(c.externalID), SiteAddress: c.address, Note: c.note}
		testkit.Equal(t, fmt.Sprintf("%q", []string{c.externalID, c.address, c.note}), c.want, row.words())
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("w", i))
	}
	row := dispatchRow{ExternalID: new("X-1"), Note: strings.Join(many, " ") + strings.Repeat(".x", 700)}
	if words := row.words(); len(words) != maxWords || !slices.Contains(words, "x1") || !slices.Contains(words, "w60") || slices.Contains(words, "w61") {
		t.Errorf("%d words: %q", len(words), words)
	}
	numbers := []string{}
	for i := range maxWords {
		numbers = append(numbers, fmt.Sprint(i))
	}
	row = dispatchRow{ExternalID: new(strings.Join(numbers, "-")), SiteAddress: "Gate 7", Note: "note"}
	if words := row.words(); len(words) != maxWords {
		t.Errorf("an external id of many parts: %d words", len(words))
	}
}

func TestTermsOfASearch(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdefghijklmnop"
	for text, want := range map[string][]searchTerm{
		"":                      nil,
		" ":                     nil,
		"--":                    nil,
		"% _ ' \\ \U0001F69C":   nil,
		"Gate 2, GATE gat":      {{Word: "gate"}, {Word: "2"}},
		"1 2 테헤란타워":             {{Word: "테헤란타워"}, {Word: "1"}, {Word: "2"}},
		"ERP_2024.001":          {{Word: "erp-2024-001"}},
		"강남":                    {{Word: "강남"}},
		strings.Repeat("x", 99): {{Word: strings.Repeat("x", maxWordLength)}},
		"dsp_" + id:             {{Word: "dsp-" + id, ID: "dsp_" + id}},
		"DSP_01":                {{Word: "dsp-01", ID: "dsp_01"}},
		"dsp_":                  {{Word: "dsp"}},
		id[:7]:                  {{Word: id[:7]}},
		id[:8]:                  {{Word: id[:8], ID: "dsp_" + id[:8]}},
		id[:8] + "-1":           {{Word: id[:8] + "-1"}},
		"테헤란로테헤란로":              {{Word: "테헤란로테헤란로"}},
	} {
		testkit.Equal(t, fmt.Sprintf("%q", text), want, searchTerms(text, dispatch.DispatchPrefix))
	}
	var words, more []string
	for i := range maxWords + 3 {
		words = append(words, fmt.Sprintf("%03d", i))
		more = append(more, "0")
	}
	if n := len(searchTerms(strings.Join(words[1:], " "), dispatch.DispatchPrefix)); n != maxWords+2 {
		t.Errorf("%d terms", n)
	}
	if terms := searchTerms(strings.Join(words, " "), dispatch.DispatchPrefix); terms != nil {
		t.Errorf("no dispatch has so many words, and the terms are %q", terms)
	}
	testkit.Equal(t, "one term, often", []searchTerm{{Word: "0"}}, searchTerms(strings.Join(more, " "), dispatch.DispatchPrefix))
}
