package handler

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
)

// While the bodies of unknown callers that have arrived are as many bytes as may be, no more is read of any. Usual sign-ins and known
// callers don't notice. An answer gives the room back.
func TestBodiesInFlight(t *testing.T) {
	bound := boundBodies()
	read := func(path string, length int, then func()) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(strings.Repeat("x", length)))
		c := echo.New().NewContext(r, httptest.NewRecorder())
		c.SetPath(path)
		return bound(func(c echo.Context) error {
			_, err := io.ReadAll(c.Request().Body)
			then()
			return err
		})(c)
	}
	nothing := func() {}
	noError(t, read(signInPath, maxStrangersBodies-1, func() {
		if err := read(signInPath, maxUncounted+1, nothing); !errors.Is(err, errRateLimited) {
			t.Errorf("a long sign-in: %v", err)
		}
		noError(t, read(signInPath, maxUncounted, nothing))
		noError(t, read(bulkPath, maxBulkBody, nothing))
	}))
	noError(t, read(signInPath, maxUncounted+1, nothing))
	if err := bodyError(errRateLimited); !errors.Is(err, errRateLimited) {
		t.Error(err)
	}
}

// A body that is announced as longer than its route takes is refused unread.
func TestLongBodiesAreNotRead(t *testing.T) {
	body, sent := io.Pipe()
	defer sent.Close()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.ContentLength = maxSmallBody + 1
	if _, err := readBody(echo.New().NewContext(r, httptest.NewRecorder()), maxSmallBody); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
}
