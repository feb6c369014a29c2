package sim

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
)

// op is a call of an actor with its answer.
type op struct {
	actor, kind string
	dispatch    string
	round       int // that the call names
	instance    string
	from, to    time.Duration // since the beginning
	result      string
	final       bool              // of ALREADY_TAKEN
	won         int               // the round of a success or of a receipt
	holder      string            // of an assignment
	outcome     dispatch.Outcome  // of a receipt
	found       dispatch.Dispatch // by an admin
	version     int               // of the dispatch that an admin has read
	twice       bool              // a proxy has sent it twice
}

func (o op) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%14.9f %13.9f %s %s %s", o.from.Seconds(), (o.to - o.from).Seconds(), o.actor, o.kind, o.dispatch)
	if o.round > 0 {
		fmt.Fprintf(&s, " round %d", o.round)
	}
	fmt.Fprintf(&s, " at %s: %s", o.instance, o.result)
	if o.final {
		s.WriteString(", for good")
	}
	if o.won > 0 {
		fmt.Fprintf(&s, ", round %d %s%s", o.won, o.holder, o.outcome)
	}
	return s.String()
}

// change is a committed event. A commit that arrives late is later than its event.
type change struct {
	at, done   time.Duration
	dispatch   string
	kind       dispatch.EventType
	round      int
	driver     string
	actor      string
	start, end time.Time // of the work
	offers     bool      // drivers are notified of an offer
	region     string
	// the dispatch after the change
	version        int
	status         dispatch.Status
	opens, expires time.Duration
}

func (c change) String() string {
	return fmt.Sprintf("%14.9f %13.9f %s %s round %d %s by %s", c.at.Seconds(), (c.done - c.at).Seconds(), c.kind, c.dispatch, c.round, c.driver, c.actor)
}

// storedClaim is a row of the database.
type storedClaim struct {
	dispatch, driver string
	round            int
	outcome          dispatch.Outcome
	from, to         time.Duration // 0 where it has not ended
}

// current is a dispatch in the database.
type current struct {
	status dispatch.Status
	round  int
	driver string
}

// history is all that has happened. Safe for concurrent use while it is written.
type history struct {
	began   time.Time
	mu      sync.Mutex
	ops     []op
	changes []change
	ends    map[string][]time.Duration // when instances were killed or stopped, by slot
	reports []violation                // what the instances themselves have noticed
	dropped int64                      // taps that could not be stored
	claims  []storedClaim
	stored  []change           // the events in the database
	current map[string]current // by dispatch
	names   map[string]string
	regions map[string][]string // in which each driver can take jobs
	struck  map[fault]int
}

func newHistory() *history {
	return &history{began: time.Now(), ends: map[string][]time.Duration{}, regions: map[string][]string{}}
}

func (h *history) add(o op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// end notes that an instance is killed or stopped.
func (h *history) end(i *instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slot := fmt.Sprint("i", i.slot)
	h.ends[slot] = append(h.ends[slot], time.Since(h.began))
}

// report notes that a promise is broken.
func (h *history) report(promise, dispatch string, about ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(h.reports, violation{promise, dispatch, time.Since(h.began), fmt.Sprint(about...)})
}

// offersIt reports whether drivers are notified of an offer.
func offersIt(e dispatch.Event) bool {
	d := e.Deliveries()
	return len(d) > 0 && d[0].Type.IsOffer()
}

func (h *history) commit(w *world, d dispatch.Dispatch, events []dispatch.Event) {
	for _, e := range events {
		c := change{
			at: e.At.Sub(h.began), done: time.Since(h.began), dispatch: w.plain(string(e.Dispatch)), kind: e.Type, round: e.Round,
			driver: w.plain(string(e.Driver)), actor: w.plain(e.Actor), start: d.WorkStartsAt, end: d.WorkEndsAt, offers: offersIt(e), region: d.Region,
			version: d.Version, status: d.Status, opens: d.OpensAt.Sub(h.began), expires: d.ExpiresAt.Sub(h.began),
		}
		h.mu.Lock()
		h.changes = append(h.changes, c)
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names = w.names
}

// read reads what the database has in the end.
func (h *history) read(t *testing.T, url string) {
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite://"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	each := func(query string, scan func(*sql.Rows) error) {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	since := func(us int64) time.Duration { return time.UnixMicro(us).Sub(h.began) }
	each("SELECT dispatch_id, driver_id, round, outcome, accepted_at, COALESCE(ended_at, 0) FROM claims ORDER BY accepted_at", func(rows *sql.Rows) error {
		var c storedClaim
		var from, to int64
		err := rows.Scan(&c.dispatch, &c.driver, &c.round, &c.outcome, &from, &to)
		c.dispatch, c.driver, c.from = h.names[c.dispatch], h.names[c.driver], since(from)
		if to > 0 {
			c.to = since(to)
		}
		h.claims = append(h.claims, c)
		return err
	})
	each("SELECT dispatch_id, type, round, COALESCE(driver_id, ''), actor, at FROM events WHERE dispatch_id <> '' ORDER BY at, id", func(rows *sql.Rows) error {
		var c change
		var driver string
		var at int64
		err := rows.Scan(&c.dispatch, &c.kind, &c.round, &driver, &c.actor, &at)
		c.dispatch, c.driver, c.at = h.names[c.dispatch], h.names[driver], since(at)
		if name, ok := h.names[c.actor]; ok {
			c.actor = name
		}
		h.stored = append(h.stored, c)
		return err
	})
	h.current = map[string]current{}
	each("SELECT id, status, round, COALESCE(accepted_by, '') FROM dispatches", func(rows *sql.Rows) error {
		var id, driver string
		var c current
		err := rows.Scan(&id, &c.status, &c.round, &driver)
		c.driver = h.names[driver]
		h.current[h.names[id]] = c
		return err
	})
	slices.SortStableFunc(h.ops, func(a, b op) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.actor, b.actor)) })
}

// isCalm reports whether no fault has struck but cheats.
func (h *history) isCalm() bool {
	for f := range h.struck {
		if !slices.Contains(cheating, f) {
			return false
		}
	}
	return true
}

// accepts returns how many taps were answered by an instance.
func (h *history) accepts() (n, wins int) {
	for _, o := range h.ops {
		if o.kind == "accept" && o.result != notReached {
			n++
		}
		if o.kind == "accept" && o.result == success {
			wins++
		}
	}
	return n, wins
}

// String lists the calls and the changes by time.
func (h *history) String() string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for _, o := range h.ops {
		lines = append(lines, line{o.to, o.String()})
	}
	for _, c := range h.changes {
		lines = append(lines, line{c.done, c.String()})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var s strings.Builder
	for _, l := range lines {
		s.WriteString(l.text + "\n")
	}
	return s.String()
}
