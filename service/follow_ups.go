package service

import (
	"time"
)

// maxFollowUps bounds the offers to check: there is room for another by dropping the one that was checked longest ago.
const maxFollowUps = 10_000

// followUp is a check whether an offer is still open, because drivers were refused by a claim that was being decided, or that is lost.
type followUp struct {
	due     time.Time
	since   time.Time // when its time to be retried began
	refused time.Time // when a driver was last refused
	// lost says that the database has lost a claim of the offer: a marker in Redis proves nothing.
	lost bool
}

// follow has the offer checked after wait, because a driver was refused, or because the database has lost a claim of it. Of several calls
// for one offer, the earliest counts.
func (m *memory) follow(o offer, wait time.Duration, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	f := followUp{due: now.Add(wait), since: now, refused: now, lost: lost}
	if old, ok := m.followUps.Peek(o); ok {
		f.lost = lost || old.lost
		if old.due.Before(f.due) {
			f.due = old.due
		}
	}
	m.addFollowUp(o, f)
}

// addFollowUp needs m.mu.
func (m *memory) addFollowUp(o offer, f followUp) {
	if m.followUps.Add(o, f) {
		m.dropped++
	}
	if f.due.Before(m.nextFollowUp) {
		m.nextFollowUp = f.due
	}
}

// dueFollowUps removes and returns the offers to check at now, and how many were dropped since the last call.
func (m *memory) dueFollowUps(now time.Time) (due map[offer]followUp, dropped int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dropped, m.dropped = m.dropped, 0
	if now.Before(m.nextFollowUp) {
		return nil, dropped
	}
	due, m.nextFollowUp = map[offer]followUp{}, now.Add(followUpOpening)
	for _, o := range m.followUps.Keys() {
		if f, _ := m.followUps.Peek(o); !now.Before(f.due) {
			due[o] = f
			m.followUps.Remove(o)
		} else if f.due.Before(m.nextFollowUp) {
			m.nextFollowUp = f.due
		}
	}
	return due, dropped
}

// followAgain puts back what dueFollowUps has removed. If a driver was refused meanwhile, that check counts.
func (m *memory) followAgain(o offer, f followUp, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.due = time.Now().Add(wait)
	if newer, ok := m.followUps.Peek(o); ok {
		newer.lost = newer.lost || f.lost
		f = newer
	}
	m.addFollowUp(o, f)
}

// stillToFollow is how many offers are still to be checked.
func (m *memory) stillToFollow() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.followUps.Len()
}
