//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package handler

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// An outage is one line at its begin, which names who asked for what, and one with its length at its end. A fault of the program is logged
// each time.
func TestLogOfAnOutage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := &testkit.LogBuffer{}
		h := &handler{API: API{Log: slog.New(slog.NewTextHandler(log, nil))}}
		fail := func(err error) {
			r := httptest.NewRequest("POST", "/v1/dispatches/dsp_1/accept", nil)
			c := echo.New().NewContext(r.WithContext(dispatch.WithCaller(r.Context(), dispatch.Caller{Actor: "drv_1"})), httptest.NewRecorder())
			h.answerError(err, c)
		}
		for range 2 {
			for range 30 {
				fail(claimError{dispatch.ErrUnavailable})
				time.Sleep(20 * time.Second)
			}
			if first := log.Drain(); strings.Count(first, "\n") != 1 || !strings.Contains(first, "drv_1") || !strings.Contains(first, "dsp_1") {
				t.Errorf("the begin: %s", first)
			}
			time.Sleep(failuresEnd)
			if end := log.Drain(); strings.Count(end, "\n") != 1 || !strings.Contains(end, "failed=30 outage=9m40s") {
				t.Errorf("the end: %s", end)
			}
		}
		fail(errTooLarge)
		for range 2 {
			fail(errors.New("a fault"))
		}
		if faults := log.Drain(); strings.Count(faults, "level=ERROR") != 2 {
			t.Errorf("the faults: %s", faults)
		}
	})
}
