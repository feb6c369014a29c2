package handler

import (
	"context"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// searchesAtOnce is how many searches, and how many previews, an instance runs at once. Each key runs one of either at once.
	searchesAtOnce = 2
	// searchesWaiting is how many searches of a key wait for the running one, and searchTimeout how long. It is enough for a page
	// that searches while the user types.
	searchesWaiting = 4
	searchTimeout   = 2 * time.Second
)

// searchQueue limits the queries that may read many rows: one at a time for each key, and a few for all keys together.
type searchQueue struct {
	mu sync.Mutex
	of map[string]*callerSearches
	// texts and previews are the semaphores for all keys. They are separate, so that searches of viewers don't block previews of
	// dispatchers. exports is for one export of a driver's data at a time: it may take long.
	texts, previews, exports chan struct{}
}

// callerSearches are one key's running and waiting searches.
type callerSearches struct {
	turn chan struct{}
	n    int // running and waiting
}

func newSearchQueue() *searchQueue {
	return &searchQueue{of: map[string]*callerSearches{}, texts: make(chan struct{}, searchesAtOnce), previews: make(chan struct{}, searchesAtOnce), exports: make(chan struct{}, 1)}
}

// runText calls list, in the queue if it searches for text: a search for common words reads many dispatches, and one for drivers all.
func (s *searchQueue) runText(c echo.Context, caller, text string, list func() error) error {
	if text == "" {
		return list()
	}
	return s.run(c, caller, s.texts, list)
}

// runPreview calls preview in the queue.
func (s *searchQueue) runPreview(c echo.Context, caller string, preview func() error) error {
	return s.run(c, caller, s.previews, preview)
}

// runExport calls export unless another export is running. It does not count as the caller's search, which would wait for it.
func (s *searchQueue) runExport(c echo.Context, export func() error) error {
	select {
	case s.exports <- struct{}{}:
		defer func() { <-s.exports }()
		return export()
	default:
		return rateLimited(c, time.Second)
	}
}

// run calls search when the caller has no other search running and the semaphore has room. It returns errRateLimited if too many
// wait, or after searchTimeout.
func (s *searchQueue) run(c echo.Context, caller string, places chan struct{}, search func() error) error {
	own := s.acquire(caller)
	if own == nil {
		return rateLimited(c, time.Second)
	}
	defer s.release(caller, own)
	ctx, cancel := context.WithTimeout(c.Request().Context(), searchTimeout)
	defer cancel()
	for _, turn := range []chan struct{}{own.turn, places} { // in this order: waiting for one's own searches takes no room from other callers
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			if hungUp(c.Request().Context()) {
				return errHungUp
			}
			return rateLimited(c, time.Second)
		}
	}
	return search()
}

func (s *searchQueue) acquire(caller string) *callerSearches {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[caller]
	if own == nil {
		own = &callerSearches{turn: make(chan struct{}, 1)}
		s.of[caller] = own
	}
	if own.n > searchesWaiting {
		return nil
	}
	own.n++
	return own
}

func (s *searchQueue) release(caller string, own *callerSearches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.n--; own.n == 0 {
		delete(s.of, caller)
	}
}
