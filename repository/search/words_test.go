package search

import (
	"fmt"
	"strings"
	"testing"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

func TestTermsOfASearch(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdefghijklmnop"
	for text, want := range map[string][]Term{
		"":                      nil,
		" ":                     nil,
		"--":                    nil,
		"% _ ' \\ \U0001F69C":   nil,
		"Gate 2, GATE gat":      {{Begins: []string{"gate"}}, {Begins: []string{"2"}}},
		"1 2 테헤란타워":             {{Begins: []string{"테헤란타워"}}, {Begins: []string{"1"}}, {Begins: []string{"2"}}},
		"ERP_2024.001":          {{Begins: []string{"erp-2024-001"}}},
		"강남":                    {{Begins: []string{"강남"}}},
		strings.Repeat("x", 99): {{Begins: []string{strings.Repeat("x", MaxWordLength)}}},
		"dsp_" + id:             {{Begins: []string{"dsp-" + id}, ID: "dsp_" + id}},
		"DSP_01":                {{Begins: []string{"dsp-01"}, ID: "dsp_01"}},
		"dsp_":                  {{Begins: []string{"dsp"}}},
		id[:7]:                  {{Begins: []string{id[:7]}}},
		id[:8]:                  {{Begins: []string{id[:8]}, ID: "dsp_" + id[:8]}},
		id[:8] + "-1":           {{Begins: []string{id[:8] + "-1"}}},
		"테헤란로테헤란로":              {{Begins: []string{"테헤란로테헤란로"}}},
	} {
		testkit.Equal(t, fmt.Sprintf("%q", text), want, Terms(text, dispatch.DispatchPrefix))
	}
	var words, more []string
	for i := range MaxWords + 3 {
		words = append(words, fmt.Sprintf("%03d", i))
		more = append(more, "0")
	}
	if n := len(Terms(strings.Join(words[1:], " "), dispatch.DispatchPrefix)); n != MaxWords+2 {
		t.Errorf("%d terms", n)
	}
	if terms := Terms(strings.Join(words, " "), dispatch.DispatchPrefix); terms != nil {
		t.Errorf("no dispatch has so many words, and the terms are %q", terms)
	}
	testkit.Equal(t, "one term, often", []Term{{Begins: []string{"0"}}}, Terms(strings.Join(more, " "), dispatch.DispatchPrefix))
}
