package systemtest

import (
	"bufio"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Metric returns the sum of a metric over its labels, as the operations listener at ops serves it.
func Metric(t testing.TB, ops, name string) float64 {
	t.Helper()
	return sum(scrape(t, ops), name)
}

// scrape returns the values of all series at ops, by name{labels without the closing brace.
func scrape(t testing.TB, ops string) map[string]float64 {
	t.Helper()
	served := send("GET", "http://"+ops+"/metrics", "", "")
	if served.status != 200 {
		t.Fatal(served)
	}
	found := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(served.body)); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok {
			series, value, _ = strings.Cut(lines.Text(), " ")
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(series, "#") {
			found[strings.TrimSuffix(series, "}")] = n
		}
	}
	return found
}

// sum adds up the series of a metric that have all of these labels.
func sum(series map[string]float64, metric string, labels ...string) (total float64) {
	for name, n := range series {
		own, _, _ := strings.Cut(name, "{")
		if own == metric && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(name, l) }) {
			total += n
		}
	}
	return total
}
