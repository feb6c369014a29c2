package servertest

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	line := "42 (a (b) c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 123"
	if got, err := parseStat(line); err != nil || got != 2*time.Second {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseStat("42 (x) S 1"); err == nil {
		t.Error("a short line was accepted")
	}
}
