package limit

import (
	"fmt"
	"strconv"
	"strings"
)

// Rate is how many requests a second a caller may make. Twice that may come at once.
type Rate float64

// ParseRate reads "20/s".
func ParseRate(s string) (Rate, error) {
	number, ok := strings.CutSuffix(s, "/s")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n > 0 && n <= 1e9) {
		return 0, fmt.Errorf("%q is not a rate like 20/s", s)
	}
	return Rate(n), nil
}

// Limit is the limit at this rate, in this instance alone.
func (r Rate) Limit() Options {
	return Options{Rate: float64(r), Burst: int(2 * r)}
}
