package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// percentile gives the nearest-rank percentile p (0 < p <= 100) of times, 0 when there are none. It does not change times.
func percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// spread is the median of some figures and their ends. The zero spread has no figures.
type spread struct {
	n                int
	median, min, max float64
}

// spreadOf sums figures up; the median of an even number is the mean of the middle two.
func spreadOf(figures []float64) spread {
	n := len(figures)
	if n == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	return spread{
		n:      n,
		median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		min:    sorted[0],
		max:    sorted[n-1],
	}
}

// digits writes v with three significant digits: nothing here is known more exactly.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case v == 1:
		return "1"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// String gives the median, or a dash.
func (s spread) String() string {
	if s.n == 0 {
		return "-"
	}
	return digits(s.median)
}

// wide gives the median with the ends, or a dash.
func (s spread) wide() string {
	if s.n < 2 {
		return s.String()
	}
	return fmt.Sprintf("%s (%s–%s)", digits(s.median), digits(s.min), digits(s.max))
}
