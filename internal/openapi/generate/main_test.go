package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCurrent compares the committed document with the files that it is made of.
func TestCurrent(t *testing.T) {
	want, err := generate(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("openapi.json is not what internal/openapi/api says: run go generate ./internal/openapi")
	}
}

func TestJoin(t *testing.T) {
	all := object{"a": object{"b": 1}}
	if err := join(all, object{"a": object{"c": 2}}); err != nil || fmt.Sprint(all) != "map[a:map[b:1 c:2]]" {
		t.Errorf("%v, %v", all, err)
	}
	if err := join(all, object{"a": object{"b": 1}}); err == nil || !strings.Contains(err.Error(), "a: b is defined twice") {
		t.Errorf("%v", err)
	}
}
