package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test, and goes on, if got is not want. What says what was compared.
func Equal[T any](t testing.TB, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
