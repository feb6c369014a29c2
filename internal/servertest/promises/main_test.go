package main

import (
	"os"
	"testing"
)

// TestPromisesAreCurrent: docs/promises.md is what the tests' comments say.
func TestPromisesAreCurrent(t *testing.T) {
	want, err := promises("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/promises.md is not current: run make promises")
	}
}
