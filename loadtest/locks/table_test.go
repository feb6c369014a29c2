package locks

import (
	"fmt"
	"slices"
	"strings"
)

// table is printed at once, because go test prints lines in between.
type table struct {
	head string
	rows [][]string
}

func newTable(head string, columns ...string) *table {
	line := slices.Repeat([]string{"---"}, len(columns))
	return &table{head, [][]string{columns, line}}
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", t.head)
	for _, cells := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Println(b.String())
}

// spread is the median, the minimum and the maximum of the values.
func spread(values []float64, digits int) string {
	sorted := slices.Sorted(slices.Values(values))
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, median(sorted), digits, sorted[0], digits, sorted[len(sorted)-1])
}

// middle is the median and the quartiles of the values, for values with outliers from a machine's other load.
func middle(values []float64, digits int) string {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted) - 1
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, median(sorted), digits, sorted[n/4], digits, sorted[n-n/4])
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
