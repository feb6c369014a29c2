package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
)

// TestNoTerminal: what is no terminal gets JSON. TestFirstMinute of systemtest has a terminal.
func TestNoTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	read, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer pipe.Close()
	if IsTerminal(null) || IsTerminal(pipe) || IsTerminal(&bytes.Buffer{}) {
		t.Errorf("/dev/null, a pipe and a buffer are terminals: %t, %t, %t", IsTerminal(null), IsTerminal(pipe), IsTerminal(&bytes.Buffer{}))
	}
	var out bytes.Buffer
	NewLogger(&out, slog.LevelInfo).Info("a line")
	if !json.Valid(out.Bytes()) {
		t.Errorf("no JSON: %s", &out)
	}
}
