package testkit

import (
	"os"
	"reflect"
	"testing"
)

// MustHoldFiles fails the test when the folder holds other files.
func MustHoldFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
}
