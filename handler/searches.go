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
	searchPatience  = 2 * time.Second
)

// searches has what reads whole tables done one at a time for each key. There is nothing in it but what is under way.
type searches struct {
	mu sync.Mutex
	of map[string]*searching
	// texts and previews are the places of all keys. They are apart: who may only read keeps nobody from making a dispatch.
	texts, previews chan struct{}
}

// searching is what a key searches.
type searching struct {
	turn chan struct{}
	n    int // who search or wait to
}

func newSearches() *searches {
	return &searches{of: map[string]*searching{}, texts: make(chan struct{}, searchesAtOnce), previews: make(chan struct{}, searchesAtOnce)}
}

// forText calls list, in turn where it searches for text: there is no index for what may stand anywhere.
func (s *searches) forText(c echo.Context, caller, text string, list func() error) error {
	if text == "" {
		return list()
	}
	return s.inTurn(c, caller, s.texts, list)
}

// forPreview calls preview in turn.
func (s *searches) forPreview(c echo.Context, caller string, preview func() error) error {
	return s.inTurn(c, caller, s.previews, preview)
}

// inTurn calls search when it is the caller's turn and there is a place. errRateLimited where there are too many, or it does
// not come soon.
func (s *searches) inTurn(c echo.Context, caller string, places chan struct{}, search func() error) error {
	own := s.enter(caller)
	if own == nil {
		return tooMany(c, time.Second)
	}
	defer s.leave(caller, own)
	ctx, cancel := context.WithTimeout(c.Request().Context(), searchPatience)
	defer cancel()
	for _, turn := range []chan struct{}{own.turn, places} { // who waits for their own keeps nobody else waiting
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return tooMany(c, time.Second)
		}
	}
	return search()
}

func (s *searches) enter(caller string) *searching {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[caller]
	if own == nil {
		own = &searching{turn: make(chan struct{}, 1)}
		s.of[caller] = own
	}
	if own.n > searchesWaiting {
		return nil
	}
	own.n++
	return own
}

func (s *searches) leave(caller string, own *searching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.n--; own.n == 0 {
		delete(s.of, caller)
	}
}
