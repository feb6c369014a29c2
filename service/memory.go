package service

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"firsttap/dispatch"
)

const (
	// markerTTL is how long taps are refused by a marker or by memory without a query. The next tap asks the database, and
	// marks the dispatch again.
	markerTTL = time.Minute
	// maxTaken bounds the claims that are known; taps on other dispatches ask Redis or the database.
	maxTaken = 16384
	// sidelinedFor is how long a driver stays sidelined after a tap that could not win. Meanwhile the driver can win, but may wait for a
	// slot, and gets ErrUnavailable if none is free in time.
	sidelinedFor = 10 * time.Minute
	maxSidelined = 4096
	// maxDoubts bounds the claims to verify: a later tap adds again what does not fit.
	maxDoubts = 2 * maxTaken
	// maxReported bounds the lost claims that are not reported again.
	maxReported = 4096
	// scanned is how many entries a scan looks at while taps wait.
	scanned = 500
)

// memory is what this process believes about dispatches and drivers. It refuses most taps without Redis and without SQL. It may be
// wrong, as another instance can end a claim and a failover can lose one: what it refuses is checked behind the taps, see checks.go.
// Safe for concurrent use.
type memory struct {
	mu      sync.Mutex
	flights map[flightKey]*flight
	taken   *simplelru.LRU[dispatch.ID, knownClaim]
	// sidelined holds until when each driver is sidelined. A tap that can't win keeps the flight and the lock while the database finds that
	// out, and other drivers are refused meanwhile. So the next taps of its driver are decided alone, and refuse no other driver.
	sidelined *simplelru.LRU[dispatch.DriverID, time.Time]
	// doubts are the claims that the database is to be asked about; allDoubted says that these are all that are known.
	doubts     map[claimKey]doubt
	allDoubted bool
	// reported are the claims that the database has lost, and of which the operator knows.
	reported  *simplelru.LRU[claimKey, struct{}]
	followUps *simplelru.LRU[offer, followUp]
	// nextFollowUp is not after the first follow-up that is due, and dropped counts those that had to make room.
	nextFollowUp time.Time
	dropped      int
}

// offer is a round of a dispatch, 0 for the current one. Taps without a round are decided apart from those with one.
type offer struct {
	dispatch dispatch.ID
	round    int
}

// flightKey identifies a decision.
type flightKey struct {
	offer
	// alone is the decision's driver if other drivers are not refused while it is under way, because the driver is sidelined or is known
	// to have won. Otherwise it is "".
	alone dispatch.DriverID
}

// flight is a decision under way.
type flight struct {
	key    flightKey
	driver dispatch.DriverID
	// refused says that another driver was refused because of it. memory.mu guards it.
	refused bool
	// done is closed when result is set.
	done   chan struct{}
	result result
}

type result struct {
	acceptance Acceptance
	err        error
}

// holder is a committed claim: its driver and its round.
type holder struct {
	driver dispatch.DriverID
	round  int
}

// knownClaim is the newest claim of a dispatch that is known. It refuses taps for markerTTL after it was learned.
type knownClaim struct {
	holder
	learned time.Time
	// doubtAt is the time from which a tap that this claim refuses has the claim verified.
	doubtAt time.Time
}

// claimKey identifies a committed claim, whose driver has been answered SUCCESS.
type claimKey struct {
	dispatch dispatch.ID
	holder
}

// doubt is a claim that is to be verified.
type doubt struct {
	due, since time.Time
	// said is what the database has said of the claim at the last check.
	said verdict
}

func newMemory() *memory {
	return &memory{
		flights: map[flightKey]*flight{}, doubts: map[claimKey]doubt{}, taken: newLRU[dispatch.ID, knownClaim](maxTaken),
		sidelined: newLRU[dispatch.DriverID, time.Time](maxSidelined), reported: newLRU[claimKey, struct{}](maxReported),
		followUps: newLRU[offer, followUp](maxFollowUps),
	}
}

func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	l, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return l
}

// enter returns a new flight, which the caller leads and must finish; or the flight of an earlier tap of the same driver, for
// which the caller waits; or a TakenError.
func (m *memory) enter(tap Tap) (f *flight, leads bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refuseTaken(tap); err != nil {
		return nil, false, err
	}
	key := flightKey{offer: offer{tap.Dispatch, tap.Round}}
	f, ok := m.flights[key]
	// A winner who taps again gets a decision of their own, because the decision about another driver's tap would refuse the winner.
	if !ok && m.isSidelined(tap.Driver) || ok && f.driver != tap.Driver && m.knowsWinner(tap) {
		key.alone = tap.Driver
		f, ok = m.flights[key]
	}
	switch {
	case !ok:
		f = &flight{key: key, driver: tap.Driver, done: make(chan struct{})}
		m.flights[key] = f
		return f, true, nil
	case f.driver == tap.Driver:
		return f, false, nil
	}
	f.refused = true
	return nil, false, &dispatch.TakenError{}
}

// finish ends the flight with r and reports whether another driver was refused because of it.
func (m *memory) finish(f *flight, r result) (refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.flights, f.key)
	f.result = r
	close(f.done)
	return f.refused
}

// refuse returns a TakenError if another driver is known to have the tap's round.
func (m *memory) refuse(tap Tap) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refuseTaken(tap)
}

// refuseTaken is refuse for callers that hold m.mu. A claim that refuses late taps is verified.
func (m *memory) refuseTaken(tap Tap) error {
	now := time.Now()
	known, ok := m.taken.Get(tap.Dispatch)
	// A tap without a round may be on a later round than is known here: another instance may have reopened the dispatch.
	if !ok || tap.Round == 0 || tap.Round > known.round || known.driver == tap.Driver || now.Sub(known.learned) >= markerTTL {
		return nil
	}
	if !now.Before(known.doubtAt) {
		m.addDoubt(tap.Dispatch, known.holder, now)
		known.doubtAt = now.Add(reverifyAfter)
		m.taken.Add(tap.Dispatch, known)
	}
	return &dispatch.TakenError{Final: true}
}

// hasWon reports whether the tap's driver is known to have the tap's round, or had it: the claim may have ended at another instance.
func (m *memory) hasWon(tap Tap) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.knowsWinner(tap)
}

// knowsWinner is hasWon for callers that hold m.mu.
func (m *memory) knowsWinner(tap Tap) bool {
	known, ok := m.taken.Peek(tap.Dispatch)
	return ok && known.driver == tap.Driver && (tap.Round == 0 || tap.Round == known.round)
}

// learn remembers a committed claim, unless a later round is known, and ends the follow-ups of its round. If another driver is known to
// have the round, one of the two claims is verified: the known one if the new one is certain, as the database has said it, and else the new
// one, which may be a marker that has outlived its claim.
func (m *memory) learn(id dispatch.ID, h holder, certain bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, round := range []int{h.round, 0} {
		if f, _ := m.followUps.Peek(offer{id, round}); certain || !f.lost {
			m.followUps.Remove(offer{id, round})
		}
	}
	now := time.Now()
	known, ok := m.taken.Peek(id)
	if ok && known.round == h.round && known.driver != h.driver {
		if !certain {
			m.addDoubt(id, h, now)
			return
		}
		m.addDoubt(id, known.holder, now)
	}
	if !ok || known.round <= h.round {
		m.taken.Add(id, knownClaim{h, now, now.Add(verifyAfter)})
	}
}

// forget drops the dispatch's known claim if it is h.
func (m *memory) forget(id dispatch.ID, h holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.taken.Peek(id); ok && known.holder == h {
		m.taken.Remove(id)
	}
}

// sideline keeps the driver's taps from refusing other drivers for a while, and reports whether the driver was not sidelined.
func (m *memory) sideline(v dispatch.DriverID) (fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh = !m.isSidelined(v)
	m.sidelined.Add(v, time.Now().Add(sidelinedFor))
	return fresh
}

// restore ends the sidelining of a driver who has won.
func (m *memory) restore(v dispatch.DriverID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sidelined.Remove(v)
}

// isSidelined needs m.mu.
func (m *memory) isSidelined(v dispatch.DriverID) bool {
	until, ok := m.sidelined.Get(v)
	return ok && time.Now().Before(until)
}

// doubt has the claim verified at due, unless it is to be verified already.
func (m *memory) doubt(id dispatch.ID, h holder, due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addDoubt(id, h, due)
}

// addDoubt is doubt for callers that hold m.mu.
func (m *memory) addDoubt(id dispatch.ID, h holder, due time.Time) {
	k := claimKey{id, h}
	if _, ok := m.doubts[k]; !ok && len(m.doubts) < maxDoubts {
		m.doubts[k] = doubt{due: due, since: due}
	}
}

// doubtAll has all known claims verified.
func (m *memory) doubtAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allDoubted = true
}

// dueDoubts returns the claims to verify at now, as many as one statement may ask about, and drops those that are too old.
func (m *memory) dueDoubts(now time.Time) (map[claimKey]doubt, []dispatch.ID) {
	m.addAllDoubts(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	due := map[claimKey]doubt{}
	var ids []dispatch.ID
	for k, d := range m.doubts {
		switch {
		case now.Sub(d.since) > verifyMaxAge:
			delete(m.doubts, k)
		case !now.Before(d.due) && len(due) < verifyBatch:
			due[k] = d
			ids = append(ids, k.dispatch)
		}
	}
	return due, ids
}

// addAllDoubts doubts all known claims if doubtAll was called. Taps need not wait until it has seen all.
func (m *memory) addAllDoubts(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.allDoubted {
		return
	}
	m.allDoubted = false
	for part := range slices.Chunk(m.taken.Keys(), scanned) {
		for _, id := range part {
			if known, ok := m.taken.Peek(id); ok && now.Sub(known.learned) < verifyMaxAge {
				m.addDoubt(id, known.holder, now)
			}
		}
		m.mu.Unlock()
		m.mu.Lock()
	}
}

// setDoubt keeps the doubt of a claim; nil ends it.
func (m *memory) setDoubt(k claimKey, d *doubt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d == nil {
		delete(m.doubts, k)
	} else {
		m.doubts[k] = *d
	}
}

// reportedNow reports whether the loss of the claim is reported for the first time.
func (m *memory) reportedNow(k claimKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.reported.Contains(k)
	m.reported.Add(k, struct{}{})
	return !known
}
