package handler

import (
	"testing"
	"time"

	"firsttap/internal/limit"
)

// TestRetryAfterIsLongEnough: a client that waits as long as Retry-After says is served.
func TestRetryAfterIsLongEnough(t *testing.T) {
	for _, rate := range []limit.Rate{0.3, 0.6, 0.7} {
		now := time.Now()
		w := newWorld(t, func(a *API) { a.AdminRate, a.Now = rate, func() time.Time { return now } })
		var r reply
		for r = w.call("GET", "/v1/admin/dispatches", key, ""); r.status == 200; {
			r = w.call("GET", "/v1/admin/dispatches", key, "")
		}
		wait, err := time.ParseDuration(r.header.Get("Retry-After") + "s")
		noError(t, err)
		now = now.Add(wait)
		w.call("GET", "/v1/admin/dispatches", key, "").want(200)
	}
}

// TestSearches: neither a search in Korean nor one for invalid text is answered by "try again", or finds what has not that text.
func TestSearches(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *place) {
		w := newWorldOn(t, p.url)
		w.dispatch(1)
		for q, want := range map[string]int{"sejong": 0, "강남": 1, "서울시": 1, "%F0%9F%8F%97": 0, "%ff": 0, "%ed%a0%80": 0, "%00": 0} {
			if r := w.call("GET", "/v1/admin/dispatches?q="+q, key, ""); r.status >= 500 || r.status == 200 && len(items(r)) != want {
				t.Errorf("q=%s: %d %.300s", q, r.status, r.raw)
			}
		}
	})
}
