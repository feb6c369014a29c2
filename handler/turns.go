package handler

import (
	"context"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// listsAtOnce is how many lists and counts of the backoffice an instance reads at once. listsWaiting is how many of a key wait for the
	// running one: enough for several pages of the console that are loaded together.
	listsAtOnce  = 2
	listsWaiting = 32
	// searchesAtOnce is how many searches, and how many previews, an instance runs at once. searchesWaiting is enough for a page that
	// searches while the user types.
	searchesAtOnce  = 2
	searchesWaiting = 4
	// entriesAtOnce is how many sign-ins are written at once: fewer than the connections for writes, as those of one key wait for each
	// other.
	entriesAtOnce = 2
	// turnTimeout is how long a read waits for its turn.
	turnTimeout = 2 * time.Second
	// maxRest bounds the rest of a key after a read.
	maxRest = time.Second
)

// turns limits what costs more than a row: one at a time for each key, and a few for all keys together.
type turns struct {
	places  chan struct{} // the semaphore for all keys
	waiting int           // how many of a key wait for the running one
	mu      sync.Mutex
	of      map[string]*callerTurns
}

// callerTurns are one key's running and waiting reads.
type callerTurns struct {
	turn chan struct{}
	n    int // running and waiting
}

func newTurns(atOnce, waiting int) *turns {
	return &turns{places: make(chan struct{}, atOnce), waiting: waiting, of: map[string]*callerTurns{}}
}

// inTurn returns next as a read of the backoffice that waits for its turn. A search has a queue of its own: it may take seconds, for which
// the caller's lists don't wait. The answer is sent after the turn: a client that reads slowly delays nobody.
func (h *handler) inTurn(next func(c echo.Context, actor string) error) func(c echo.Context, actor string) error {
	return func(c echo.Context, actor string) error {
		queue := h.lists
		if c.QueryParam("q") != "" {
			queue = h.searches
		}
		var made *answer
		err := queue.run(c, actor, func() error {
			made = h.capture(c, func(c echo.Context) error { return next(c, actor) })
			return nil
		})
		if err != nil {
			return err
		}
		return made.send(c.Response().Writer)
	}
}

// run calls read when the caller has no other read running and the semaphore has room. After it the caller's next one waits for as long as
// this one took: a key that asks without a pause reads half of the time. run returns errRateLimited if too many wait, or after turnTimeout.
func (t *turns) run(c echo.Context, caller string, read func() error) error {
	own := t.acquire(caller)
	if own == nil {
		return rateLimited(c, time.Second)
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), turnTimeout)
	defer cancel()
	if !enter(ctx, own.turn) {
		t.release(caller, own)
		return tooLate(c)
	}
	var took time.Duration
	defer func() {
		time.AfterFunc(min(took, maxRest), func() {
			<-own.turn
			t.release(caller, own)
		})
	}()
	if !enter(ctx, t.places) { // last: waiting for one's own reads takes no room from other callers
		return tooLate(c)
	}
	defer func() { <-t.places }()
	began := time.Now()
	defer func() { took = time.Since(began) }()
	return read()
}

// tooLate returns the error of a read that did not get its turn in time, or whose caller has hung up.
func tooLate(c echo.Context) error {
	if hungUp(c.Request().Context()) {
		return errHungUp
	}
	return rateLimited(c, time.Second)
}

// enter reports whether the semaphore had room before ctx ended.
func enter(ctx context.Context, semaphore chan struct{}) bool {
	select {
	case semaphore <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *turns) acquire(caller string) *callerTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[caller]
	if own == nil {
		own = &callerTurns{turn: make(chan struct{}, 1)}
		t.of[caller] = own
	}
	if own.n > t.waiting {
		return nil
	}
	own.n++
	return own
}

func (t *turns) release(caller string, own *callerTurns) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.n--; own.n == 0 {
		delete(t.of, caller)
	}
}
