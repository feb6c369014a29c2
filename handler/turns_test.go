//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package handler

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
	"firsttap/repository/database"

	"github.com/labstack/echo/v4"
)

// held is a world whose searches stop before their statement, until release.
type held struct {
	*world
	reached        chan struct{} // gets each search
	release        chan struct{}
	at, atOnce     atomic.Int64 // under way, and the most that were
	all            sync.WaitGroup
	mu             sync.Mutex
	ended, refused int
}

// newHeld has admins with these keys, which have been looked up.
func newHeld(t *testing.T, keys ...string) *held {
	h := &held{reached: make(chan struct{}, 100), release: make(chan struct{})}
	h.world = newWorld(t)
	for _, k := range keys {
		h.putNamedKey("key_"+k, dispatch.Admin, k)
		h.call("GET", "/v1/admin/api-keys", k, "").want(200)
	}
	h.observe(func(c context.Context, s database.Statement) (context.Context, func(error)) {
		if !strings.Contains(s.Query, "FROM dispatch_words") && !strings.Contains(s.Query, "FROM driver_words") && !strings.Contains(s.Query, "FROM devices dv") {
			return c, func(error) {}
		}
		h.mu.Lock()
		h.atOnce.Store(max(h.atOnce.Load(), h.at.Add(1)))
		h.mu.Unlock()
		h.reached <- struct{}{}
		<-h.release
		return c, func(error) { h.at.Add(-1) }
	})
	return h
}

// search has the key's holder search behind the test.
func (h *held) search(key, method, path, body string) {
	h.all.Go(func() {
		r := h.call(method, path, key, body)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case r.status == 200:
			h.ended++
		case r.status == 429 && r.code() == "RATE_LIMITED" && r.header.Get("Retry-After") == "1":
			h.refused++
		default:
			h.t.Errorf("%s: %d %s", path, r.status, r.raw)
		}
	})
}

// TestOneSearchAKey at a time: those that come meanwhile wait or are refused; another key's
// search goes on, and so does what is no search.
func TestOneSearchAKey(t *testing.T) {
	w := newHeld(t, "a", "b")
	ways := [][3]string{
		{"GET", "/v1/admin/dispatches?q=" + url.QueryEscape("강남"), ""}, {"GET", "/v1/admin/drivers?q=kim", ""},
	}
	w.search("a", ways[0][0], ways[0][1], ways[0][2])
	<-w.reached
	const more = 20
	for i := range more {
		way := ways[i%len(ways)]
		w.search("a", way[0], way[1], way[2])
	}
	w.search("b", ways[1][0], ways[1][1], ways[1][2])
	<-w.reached
	for _, path := range []string{"/v1/admin/dispatches", "/v1/admin/drivers?region=seoul"} {
		w.call("GET", path, "a", "").want(200)
	}
	testkit.Eventually(w.t, "those that are too many are refused", func() bool { return w.refusals() >= more-searchesWaiting })
	if n := w.at.Load(); n != 2 {
		t.Errorf("%d searches under way", n)
	}
	close(w.release)
	w.all.Wait()
	if w.atOnce.Load() != 2 || w.ended < 2 || w.ended+w.refused != more+2 {
		t.Errorf("%d at once, %d ended, %d refused", w.atOnce.Load(), w.ended, w.refused)
	}
}

// TestSearchesWait: as many as may wait for a key's search end after it, and one more is refused at once.
func TestSearchesWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		queue, release := newTurns(searchesAtOnce, searchesWaiting), make(chan struct{})
		search := func() error {
			c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody), httptest.NewRecorder())
			return queue.run(c, "key", func() error { <-release; return nil })
		}
		var all sync.WaitGroup
		for range 1 + searchesWaiting {
			all.Go(func() { noError(t, search()) })
		}
		synctest.Wait()
		began := time.Now()
		if err := search(); !errors.Is(err, errRateLimited) || time.Now() != began {
			t.Errorf("one more gets %v after %s", err, time.Since(began))
		}
		close(release)
		all.Wait()
	})
}

// TestSearchesAreBounded over all keys, and leave nothing behind.
func TestSearchesAreBounded(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e"}
	w := newHeld(t, keys...)
	for _, k := range keys {
		w.search(k, "GET", "/v1/admin/drivers?q=kim", "")
	}
	testkit.Eventually(w.t, "those that wait have given up", func() bool { return w.refusals() == len(keys)-searchesAtOnce })
	close(w.release)
	w.all.Wait()
	if w.atOnce.Load() != searchesAtOnce || w.ended != searchesAtOnce {
		t.Errorf("%d at once, %d ended", w.atOnce.Load(), w.ended)
	}
}

// TestPreviewsGoOn while other callers' searches use all their room.
func TestPreviewsGoOn(t *testing.T) {
	w := newHeld(t, "a", "b", "c")
	w.search("a", "GET", "/v1/admin/drivers?q=kim", "")
	w.search("b", "GET", "/v1/admin/drivers?q=kim", "")
	<-w.reached
	<-w.reached
	w.search("c", "POST", "/v1/admin/dispatches/preview", order(1))
	testkit.Eventually(w.t, "the preview is under way", func() bool { return w.at.Load() == 3 || w.refusals() > 0 })
	close(w.release)
	w.all.Wait()
	if w.ended != 3 {
		t.Errorf("%d ended, %d refused", w.ended, w.refused)
	}
}

func (h *held) refusals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// TestTurnsRest: a key that asks without a pause reads half of the time; another key does not wait.
func TestTurnsRest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const takes = 100 * time.Millisecond
		queue := newTurns(listsAtOnce, listsWaiting)
		read := func(key string) {
			c := echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody), httptest.NewRecorder())
			noError(t, queue.run(c, key, func() error { time.Sleep(takes); return nil }))
		}
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { read("a") })
		}
		synctest.Wait()
		read("b")
		testkit.Equal(t, "another key's read", takes, time.Since(began))
		all.Wait()
		testkit.Equal(t, "five reads of a key, and a rest between them", 9*takes, time.Since(began))
		time.Sleep(takes)
		synctest.Wait()
		testkit.Equal(t, "keys that are remembered", 0, len(queue.of))
	})
}

// TestListsWaitForTheirTurn: every list and count of the backoffice is read by a key one at a time.
func TestListsWaitForTheirTurn(t *testing.T) {
	w := newWorld(t)
	id, d := w.dispatch(1), w.drivers(1)[0]
	var at, atOnce atomic.Int64
	w.observe(func(c context.Context, s database.Statement) (context.Context, func(error)) {
		if s.Pool != "serve" || strings.Contains(s.Query, "hash = ?") { // who asks is looked up at once
			return c, func(error) {}
		}
		if n := at.Add(1); n > atOnce.Load() {
			atOnce.Store(n)
		}
		return c, func(error) { at.Add(-1) }
	})
	paths := []string{
		"board", "supply", "dispatches", "dispatches/" + id + "/offers", "dispatches/" + id + "/attempts", "dispatches/" + id + "/events",
		"dispatches/" + id + "/notifications", "drivers", "drivers/" + d.id + "/signals", "notifications", "api-keys", "webhooks", "audit",
	}
	for _, path := range paths {
		testkit.Together(2, func(i int) { w.call("GET", "/v1/admin/"+[]string{path, "board"}[i], key, "").want(200) })
		testkit.Equal(t, "statements of "+path+" and of the board at once", 1, int(atOnce.Swap(0)))
	}
}

// TestSignInsOfAKeyTakeTurns: while one is written the others hold no connection.
func TestSignInsOfAKeyTakeTurns(t *testing.T) {
	w := newWorld(t)
	var at, atOnce atomic.Int64
	w.observe(func(c context.Context, s database.Statement) (context.Context, func(error)) {
		if s.Operation != "begin" {
			return c, func(error) {}
		}
		if n := at.Add(1); n > atOnce.Load() {
			atOnce.Store(n)
		}
		return c, func(error) { at.Add(-1) }
	})
	testkit.Together(6, func(int) { w.call("POST", "/v1/session", "", fields(map[string]any{"key": key})).want(200) })
	testkit.Equal(t, "transactions at once", 1, int(atOnce.Load()))
}
