package handler

import (
	"context"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// searchesAtOnce is how many searches an instance has under way, of all keys, and how many previews; of one key it is one
	// of either.
	searchesAtOnce = 2
	// searchesWaiting is how many of a key wait for the one that is under way, and searchPatience for how long: a page that
	// searches while somebody types does not notice.
	searchesWaiting = 4
	searchTimeout   = 2 * time.Second
)

// searchQueue has what reads whole tables done one at a time for each key. There is nothing in it but what is under way.
type searchQueue struct {
	mu sync.Mutex
	of map[string]*callerSearches
	// texts and previews are the places of all keys. They are apart: who may only read keeps nobody from making a dispatch.
	texts, previews chan struct{}
}

// callerSearches is what a key searches.
type callerSearches struct {
	turn chan struct{}
	n    int // who search or wait to
}

func newSearchQueue() *searchQueue {
	return &searchQueue{of: map[string]*callerSearches{}, texts: make(chan struct{}, searchesAtOnce), previews: make(chan struct{}, searchesAtOnce)}
}

// runText calls list, in turn where it searches for text: there is no index for what may stand anywhere.
func (s *searchQueue) runText(c echo.Context, caller, text string, list func() error) error {
	if text == "" {
		return list()
	}
	return s.run(c, caller, s.texts, list)
}

// runPreview calls preview in turn.
func (s *searchQueue) runPreview(c echo.Context, caller string, preview func() error) error {
	return s.run(c, caller, s.previews, preview)
}

// run calls search when it is the caller's turn and there is a place. errRateLimited where there are too many, or it does
// not come soon.
func (s *searchQueue) run(c echo.Context, caller string, places chan struct{}, search func() error) error {
	own := s.acquire(caller)
	if own == nil {
		return rateLimited(c, time.Second)
	}
	defer s.release(caller, own)
	ctx, cancel := context.WithTimeout(c.Request().Context(), searchTimeout)
	defer cancel()
	for _, turn := range []chan struct{}{own.turn, places} { // who waits for their own keeps nobody else waiting
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
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
