package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// percentile returns the nearest-rank percentile p (0 < p <= 100) of times, or 0 for none. It does not change times.
func percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// spread is the median, the minimum and the maximum of some figures. The zero spread has no figures.
type spread struct {
	n                int
	median, min, max float64
}

// spreadOf summarizes figures. The median of an even number of figures is the mean of the middle two.
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

// digits formats v with three significant digits: no figure is more exact.
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

// String is the median, or a dash.
func (s spread) String() string {
	if s.n == 0 {
		return "-"
	}
	return digits(s.median)
}

// wide is the median with the minimum and the maximum, or a dash.
func (s spread) wide() string {
	if s.n < 2 {
		return s.String()
	}
	return fmt.Sprintf("%s (%s–%s)", digits(s.median), digits(s.min), digits(s.max))
}
