package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestCanceledStepHasNotFailed: a caller who hangs up makes no trace one of failures.
func TestCanceledStepHasNotFailed(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("")
	for _, err := range []error{fmt.Errorf("query: %w", context.Canceled), fmt.Errorf("query: %w", context.DeadlineExceeded)} {
		_, span := tracer.Start(t.Context(), "query")
		end(span, err, func(error) {})
	}
	if ended := spans.Ended(); ended[0].Status().Code != codes.Unset || ended[1].Status().Code != codes.Error {
		t.Errorf("canceled: %v, too late: %v", ended[0].Status(), ended[1].Status())
	}
}

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

// TestDurations: a duration in the log has its unit, and no more digits than say something.
func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: `"0s"`, 999 * time.Nanosecond: `"999ns"`, 1234567 * time.Nanosecond: `"1.23ms"`, -1500 * time.Millisecond: `"-1.5s"`, 90*time.Minute + 7*time.Second: `"1h30m10s"`,
	} {
		var out bytes.Buffer
		if NewLogger(&out, slog.LevelInfo).Info("a line", "took", d); !strings.Contains(out.String(), `"took":`+want) {
			t.Errorf("%d ns: %s", d, &out)
		}
	}
}
