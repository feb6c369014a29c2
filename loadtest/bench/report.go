package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report holds a run's figures, by way and number of connections.
type report struct {
	ways        []string
	connections []int
	order       string // of the taps
	contests    map[string]map[int]*contest
}

// wrong describes what was wrong with a way's answers; empty for nothing. A way with wrong answers gets no figures: its
// rate compares with nothing.
func (r report) wrong(way string) string {
	for _, c := range r.connections {
		for i, f := range r.contests[way][c].rounds {
			if f.wrong != "" {
				return fmt.Sprintf("%d connections, round %d: %s", c, i+1, f.wrong)
			}
		}
	}
	return ""
}

// of summarizes one figure of a way over the rounds.
func (r report) of(way string, connections int, figure func(figures) float64) spread {
	if r.contests[way] == nil || r.wrong(way) != "" {
		return spread{}
	}
	var all []float64
	for _, f := range r.contests[way][connections].rounds {
		all = append(all, figure(f))
	}
	return spreadOf(all)
}

// ratio summarizes, over the rounds, the ratio of a way's figure to base's of the same round. Both were measured within
// seconds, so the machine's other load cancels out.
func (r report) ratio(way, base string, connections int, figure func(figures) float64) spread {
	if r.contests[way] == nil || r.contests[base] == nil || r.wrong(way) != "" || r.wrong(base) != "" {
		return spread{}
	}
	if way == base {
		return spreadOf([]float64{1})
	}
	others := r.contests[base][connections].rounds
	var all []float64
	for i, f := range r.contests[way][connections].rounds {
		if i < len(others) && figure(others[i]) > 0 {
			all = append(all, figure(f)/figure(others[i]))
		}
	}
	return spreadOf(all)
}

func rate(f figures) float64     { return f.rate }
func cpu(f figures) float64      { return f.cpu }
func late(f figures) float64     { return f.late }
func allCPU(f figures) float64   { return f.cpu + f.late }
func database(f figures) float64 { return f.database }
func foreign(f figures) float64  { return 100 * f.foreign }
func loser50(f figures) float64  { return milliseconds(f.loser50) }
func loser99(f figures) float64  { return milliseconds(f.loser99) }
func winner50(f figures) float64 { return milliseconds(f.winner50) }
func winner99(f figures) float64 { return milliseconds(f.winner99) }

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// print writes the table, the aims and the remarks.
func (r report) print(w io.Writer) {
	r.table(w)
	fmt.Fprintln(w)
	r.wanted(w)
	r.remarks(w)
}

// each joins a cell's figures for all numbers of connections.
func (r report) each(figure func(connections int) string) string {
	var all []string
	for _, c := range r.connections {
		all = append(all, figure(c))
	}
	return strings.Join(all, " / ")
}

func (r report) table(w io.Writer) {
	at := r.each(func(c int) string { return fmt.Sprint(c) })
	head := []string{"way", "x simple flow, " + at + " connections", "x bare Echo, " + at, "requests/s, " + at, "CPU us a request, " + at}
	for _, c := range r.connections {
		head = append(head, fmt.Sprintf("burst of %d: loser p50 / winner p50 ms (p99)", c))
	}
	fmt.Fprintln(w, "| "+strings.Join(head, " | ")+" |")
	fmt.Fprintln(w, "|"+strings.Repeat("---|", len(head)))
	for _, way := range r.ways {
		if r.wrong(way) != "" {
			fmt.Fprintln(w, "| "+titles[way]+strings.Repeat(" | wrong answers", len(head)-1)+" |")
			continue
		}
		cells := []string{
			titles[way],
			r.each(func(c int) string { return r.ratio(way, waySimple, c, rate).wide() }),
			r.each(func(c int) string { return r.ratio(way, wayEcho, c, rate).wide() }),
			r.each(func(c int) string { return fmt.Sprintf("%.0f", r.of(way, c, rate).median) }),
			r.each(func(c int) string { return r.of(way, c, cpu).String() }),
		}
		for _, c := range r.connections {
			cells = append(cells, r.burstCell(way, c))
		}
		fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |")
	}
}

func (r report) burstCell(way string, c int) string {
	cell := fmt.Sprintf("%s / %s (%s / %s)", r.of(way, c, loser50), r.of(way, c, winner50), r.of(way, c, loser99), r.of(way, c, winner99))
	if r.contests[way][c].entrant.wins() == 0 {
		cell = fmt.Sprintf("%s / - (%s / -)", r.of(way, c, loser50), r.of(way, c, loser99))
	}
	return cell
}

// aim is a figure that FirstTap should reach.
type aim struct {
	words  string
	base   string
	figure func(figures) float64
	limit  float64
	atMost bool
}

// aims are the figures to reach at a number of connections, with the taps in that order. FirstTap's advantage grows with the crowd, and is
// the greatest where every connection goes at its own pace: the simple flow's losers read then.
func (r report) aims(connections int) []aim {
	crowd := connections >= 100
	of := func(few, many float64) float64 {
		if crowd {
			return many
		}
		return few
	}
	if r.order == "apart" {
		return []aim{{words: "the simple flow's rate", base: waySimple, figure: rate, limit: of(3, 2.6)}}
	}
	all := []aim{
		{words: "the simple flow's rate", base: waySimple, figure: rate, limit: of(1.3, 1.8)},
		{
			words: "the simple flow's CPU a request, with what is left behind",
			base:  waySimple, figure: allCPU, limit: of(0.8, 0.6), atMost: true,
		},
		{words: "the simple flow's p50 of a burst's losers", base: waySimple, figure: loser50, limit: of(0.75, 0.65), atMost: true},
		{words: "the simple flow's p50 of a burst's winner", base: waySimple, figure: winner50, limit: of(1, 0.9), atMost: true},
	}
	if crowd {
		return append(all, aim{words: "bare Echo's rate", base: wayEcho, figure: rate, limit: 0.7})
	}
	return append(
		all,
		aim{
			words:  "the simple flow's CPU of the database, with what is left behind",
			base:   waySimple,
			figure: database,
			limit:  1.6,
			atMost: true,
		},
	)
}

// wanted writes one line for each aim. A missed aim fails nothing: a timing is no test.
func (r report) wanted(w io.Writer) {
	for _, c := range r.connections {
		for _, a := range r.aims(c) {
			s := r.ratio(wayFirstTap, a.base, c, a.figure)
			if s.n == 0 {
				continue
			}
			bound, met := "at least", s.median >= a.limit
			if a.atMost {
				bound, met = "at most", s.median <= a.limit
			}
			fmt.Fprintf(w, "%s  %d connections: %sx %s, wanted %s %sx\n", verdict(met), c, s.wide(), a.words, bound, digits(a.limit))
		}
	}
}

func verdict(met bool) string {
	if met {
		return "met    "
	}
	return "not met"
}

// remarks writes the conditions of the measurement.
func (r report) remarks(w io.Writer) {
	fmt.Fprintf(w, "\nComparisons: %s.\n", poolWords)
	for _, way := range r.ways {
		if words := r.wrong(way); words != "" {
			fmt.Fprintf(w, "WRONG ANSWERS, %s: %s\n", titles[way], words)
		}
	}
	var worst float64
	for _, way := range r.ways {
		for _, c := range r.connections {
			worst = max(worst, r.of(way, c, foreign).max)
			for i, f := range r.contests[way][c].rounds {
				if f.early {
					fmt.Fprintf(w, "%s, %d connections, round %d: dispatches ran out, shorter phase\n", titles[way], c, i+1)
				}
			}
		}
	}
	fmt.Fprintf(w, "Other processes took up to %.0f %% of the machine during a rate phase", worst)
	if worst > 10 {
		fmt.Fprint(w, "; figures taken on a busy machine, prefer a quiet one")
	}
	fmt.Fprintln(w, ".")
	if r.contests[wayFirstTap] != nil {
		fmt.Fprintf(w, "FirstTap's work that the rate phase left behind, CPU us a request on top: %s.\n",
			r.each(func(c int) string { return r.of(wayFirstTap, c, late).String() }))
	}
}
