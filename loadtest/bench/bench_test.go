package main

import (
	"strings"
	"testing"
	"time"
)

func TestParseReply(t *testing.T) {
	const plain = "HTTP/1.1 409 Conflict\r\nX: y\r\ncontent-length: 17\r\n\r\n{\"ALREADY_TAKEN\"}"
	const pieces = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
	tests := []struct {
		name, in string
		status   int
		body     string
	}{
		{"length", plain, 409, `{"ALREADY_TAKEN"}`},
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, ""},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		{"chunked", pieces, 200, "abc0123456789"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, size, err := parseReply([]byte(test.in + "next"))
			if err != nil || size != len(test.in) || r.status != test.status || string(r.body) != test.body {
				t.Errorf("got %d %q, %d of %d bytes, %v", r.status, r.body, size, len(test.in), err)
			}
			for n := range len(test.in) {
				if _, size, err := parseReply([]byte(test.in[:n])); size != 0 || err != nil {
					t.Fatalf("first %d bytes: size %d, %v, want to be asked for more", n, size, err)
				}
			}
		})
	}
}

func TestParseReplyRefuses(t *testing.T) {
	for _, in := range []string{
		"HTTP/1.0 200 OK\r\n\r\n",
		"HTTP/1.1 abc\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		if _, _, err := parseReply([]byte(in)); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name    string
		won     map[int]int
		wins    int
		strange int
		right   bool
	}{
		{"one winner each", map[int]int{0: 1, 1: 1}, 1, 0, true},
		{"nobody wins a fixed answer", nil, 0, 0, true},
		{"taken twice", map[int]int{0: 1, 1: 2}, 1, 0, false},
		{"not taken", map[int]int{0: 1}, 1, 0, false},
		{"an error among the losers", map[int]int{0: 1, 1: 1}, 1, 1, false},
	}
	for _, test := range tests {
		if words := judge(2, test.won, test.wins, test.strange, ""); (words == "") != test.right {
			t.Errorf("%s: %q", test.name, words)
		}
	}
}

// Every dispatch gets as many requests as there are wires, even if one wire does the work of two.
func TestOrders(t *testing.T) {
	const wires, dispatches = 3, 4
	for name, by := range orders {
		pick, taps := by(wires), map[int]int{}
		for n := range wires * dispatches {
			taps[pick(n%wires)]++
		}
		for k := range dispatches {
			if taps[k] != wires {
				t.Errorf("%s: dispatch %d got %d taps", name, k, taps[k])
			}
		}
	}
	for name, want := range map[string]int{"apart": 0, "together": 1} {
		pick := orders[name](2)
		pick(0)
		pick(0)
		if got := pick(1); got != want {
			t.Errorf("%s: the late wire taps %d, want %d", name, got, want)
		}
	}
}

// A 200 may be repeated to the winner, and to nobody else.
func TestReplay(t *testing.T) {
	yes := reply{status: 200, body: []byte(`{"result":"SUCCESS","replayed":false}`)}
	again := reply{status: 200, body: []byte(`{"result":"SUCCESS","replayed":true}`)}
	var winner, thief tally
	winner.note(0, yes)
	winner.note(0, again)
	if o, err := gather([]tally{winner}, time.Second, 1); err != nil || o.wrong != "" || o.requests != 2 {
		t.Errorf("got %+v, %v", o, err)
	}
	thief.note(0, again)
	if o, _ := gather([]tally{winner, thief}, time.Second, 1); o.wrong == "" {
		t.Error("a replay for another driver passed")
	}
}

func TestPercentile(t *testing.T) {
	times := []time.Duration{50, 10, 40, 20, 30}
	for p, want := range map[float64]time.Duration{1: 10, 20: 10, 50: 30, 80: 40, 99: 50, 100: 50} {
		if got := percentile(times, p); got != want {
			t.Errorf("p%v = %v, want %v", p, got, want)
		}
	}
	if percentile(nil, 50) != 0 {
		t.Error("a percentile of nothing")
	}
	if times[0] != 50 {
		t.Error("the times were sorted in place")
	}
}

func TestSpread(t *testing.T) {
	if got := spreadOf([]float64{3, 1, 2}); got != (spread{3, 2, 1, 3}) {
		t.Errorf("odd: %+v", got)
	}
	if got := spreadOf([]float64{4, 1, 2, 3}); got.median != 2.5 {
		t.Errorf("even: %+v", got)
	}
	if got := spreadOf([]float64{2.266, 2.1, 2.5}).wide(); got != "2.27 (2.10–2.50)" {
		t.Errorf("words: %s", got)
	}
	if got := (spread{}).wide(); got != "-" {
		t.Errorf("no figures: %s", got)
	}
}

// A way with wrong answers has no figures in the table, and no aim is judged by it.
func TestReportWithoutFigures(t *testing.T) {
	r := report{ways: []string{waySimple, wayFirstTap}, connections: []int{30}, contests: map[string]map[int]*contest{
		waySimple:   {30: {entrant: comparison{way: waySimple}, rounds: []figures{{rate: 10, cpu: 4, loser50: 4}}}},
		wayFirstTap: {30: {entrant: comparison{way: wayFirstTap}, rounds: []figures{{rate: 25, cpu: 1, loser50: 1}}}},
	}}
	var out strings.Builder
	r.print(&out)
	if !strings.Contains(out.String(), "met      30 connections: 2.50x the simple flow's rate") {
		t.Errorf("no verdict in\n%s", &out)
	}
	r.contests[wayFirstTap][30].rounds[0].wrong = "two winners"
	out.Reset()
	r.print(&out)
	if s := out.String(); strings.Contains(s, "2.50") || strings.Contains(s, "met ") || !strings.Contains(s, "two winners") {
		t.Errorf("figures of wrong answers in\n%s", s)
	}
}
