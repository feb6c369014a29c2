package dispatches_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/search"
)

func TestWordsOfADispatch(t *testing.T) {
	t.Parallel()
	long, suffixes := strings.Repeat("가", 60), []string{}
	for n := search.MaxWordLength; n > 0; n-- {
		suffixes = append(suffixes, long[:3*n])
	}
	for _, c := range []struct {
		externalID, address, note string
		want                      []string
	}{
		{"", "", "", nil},
		{"", " -- ", "%_'!?", nil},
		{"ERP-2024/001", "", "", []string{"erp-2024-001", "2024-001", "001", "erp2024001"}},
		{"erp7", "Erp7", "ERP7 7", []string{"erp7", "7"}},
		{"", "서울특별시 강남구 테헤란로 12-3번지", "", []string{
			"서울특별시강남구테헤란로12-3번지", "강남구테헤란로12-3번지", "테헤란로12-3번지", "12-3번지", "3번지",
			"울특별시강남구테헤란로12-3번지", "특별시강남구테헤란로12-3번지", "별시강남구테헤란로12-3번지", "시강남구테헤란로12-3번지",
			"남구테헤란로12-3번지", "구테헤란로12-3번지", "헤란로12-3번지", "란로12-3번지", "로12-3번지", "번지", "지",
		}},
		{"주문7", "강남152호 A동3", "B12", []string{"주문7", "강남152호a동3", "a동3", "b12", "남152호a동3", "152호a동3", "호a동3", "동3", "3", "12"}},
		{"", "(Gate 2), O'Neill's", "call 010-1234-5678!", []string{"gate", "2", "o-neill-s", "neill-s", "s", "call", "010-1234-5678", "1234-5678", "5678"}},
		{"", "Ｓｅｏｕｌ　１２", "\u1112\u1161\u11ab ÜBER Ⅷ", []string{"seoul", "12", "한über", "über", "viii"}},
		{"", long, "", suffixes},
	} {
		row := dispatches.Row{ExternalID: database.Nullable(c.externalID), SiteAddress: c.address, Note: c.note}
		testkit.Equal(t, fmt.Sprintf("%q", []string{c.externalID, c.address, c.note}), c.want, row.Words())
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("w", i))
	}
	row := dispatches.Row{ExternalID: new("X-1"), Note: strings.Join(many, " ") + strings.Repeat(".x", 700)}
	if words := row.Words(); len(words) != search.MaxWords || !slices.Contains(words, "x1") || !slices.Contains(words, "w60") || slices.Contains(words, "w61") {
		t.Errorf("%d words: %q", len(words), words)
	}
	numbers := []string{}
	for i := range search.MaxWords {
		numbers = append(numbers, fmt.Sprint(i))
	}
	row = dispatches.Row{ExternalID: new(strings.Join(numbers, "-")), SiteAddress: "Gate 7", Note: "note"}
	if words := row.Words(); len(words) != search.MaxWords {
		t.Errorf("an external id of many parts: %d words", len(words))
	}
}

// TestSpacesAreFree: Korean text is found however it is spaced, from each character and number on, and what ends a word elsewhere still
// does.
func TestSpacesAreFree(t *testing.T) {
	t.Parallel()
	for address, terms := range map[string]map[string]bool{
		"서울시강남구테헤란로152": {
			"강남구": true, "테헤란로": true, "152": true, "52": false, "강남구 152": true, "테헤란로 152": true, "서울시 강남구 테헤란로 152": true, "강남구152": false,
		},
		"서울시 강남구, 테헤란로 152 (3층)": {
			"서울시강남구테헤란로152": true, "울시강남": true, "강남구테헤란로": true, "테헤란로152": true, "152-3층": false, "1523층": false, "남구": true, "강남구테헤란로15": true, "강남구152": false,
		},
		"부산 우동 1500번지 Gate 2": {"우동1500": true, "1500번지gate2": false, "번지gate": true, "gate2": false, "GATE 2": true, "번지 gate": true},
		"東京都 港区 六本木 ビル":       {"港区六本木": true, "東京都港区": true, "本木ビル": true, "本木ル": false},
		"12 34 call me":       {"1234": false, "callme": false, "12 34": true},
	} {
		row := dispatches.Row{SiteAddress: address}
		for text, want := range terms {
			if got := search.HaveAll(search.Terms(text, dispatch.DispatchPrefix), "", row.Words()); got != want {
				t.Errorf("%q finds %q: %v, want %v", text, address, got, want)
			}
		}
	}
}
