package fcmtest

import (
	"hash/maphash"
	"slices"
	"strconv"
	"time"
	"unique"
)

// Device is the current state of a phone.
type Device struct {
	// Visible are the notifications that the phone shows, the latest last.
	Visible []Notification `json:"visible"`
	// Received counts the messages that arrived, Duplicates those with the event_id and type of an earlier one.
	Received   int `json:"received"`
	Duplicates int `json:"duplicates"`
	// Silent are the last messages without text, at most 32, the latest last.
	Silent []Notification `json:"silent"`
}

// Notification is a message on the phone.
type Notification struct {
	Tag      string    `json:"tag,omitempty"`
	Title    string    `json:"title,omitempty"`
	Body     string    `json:"body,omitempty"`
	Event    string    `json:"event_id,omitempty"` // this and the following come from its data
	Type     string    `json:"type,omitempty"`
	Dispatch string    `json:"dispatch_id,omitempty"`
	Round    int       `json:"round,omitempty"`
	At       time.Time `json:"at"` // when it reached the phone
}

const (
	maxSilent  = 32
	maxPending = 100 // FCM keeps so many messages for an offline phone; one more and it drops all
)

// delivery is a message to one or many phones, which must not modify it. Its strings are interned, as thousands of phones
// get the same.
type delivery struct {
	tag, title, body             unique.Handle[string]
	event, typ, dispatch         unique.Handle[string]
	round                        int
	key                          uint64 // of event and type; 0 without an event
	silent, offers, ends, tagged bool
	at, until                    time.Time
}

func newDelivery(seed maphash.Seed, m *message, at time.Time) *delivery {
	data := m.data()
	d := &delivery{
		tag: unique.Make(m.tag()), title: unique.Make(m.title()), body: unique.Make(m.body()),
		event: unique.Make(data["event_id"]), typ: unique.Make(data["type"]), dispatch: unique.Make(data["dispatch_id"]),
		silent: m.silent(), tagged: m.tag() != "", at: at, until: m.until(at),
	}
	d.round, _ = strconv.Atoi(data["round"]) // 0 without one
	if event := data["event_id"]; event != "" {
		var h maphash.Hash
		h.SetSeed(seed)
		_, _ = h.WriteString(event)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(data["type"])
		d.key = h.Sum64()
	}
	switch data["type"] {
	case "dispatch.opened", "dispatch.reopened", "dispatch.updated":
		d.offers = true
	case "dispatch.taken", "dispatch.canceled", "dispatch.expired":
		d.ends = true
	}
	return d
}

func (d *delivery) notification() Notification {
	return Notification{
		Tag: d.tag.Value(), Title: d.title.Value(), Body: d.body.Value(), Event: d.event.Value(),
		Type: d.typ.Value(), Dispatch: d.dispatch.Value(), Round: d.round, At: d.at,
	}
}

// phone is a device's state, guarded by its shard. Its lists are short, so searching slices is fast enough.
type phone struct {
	dead, foreign, offline bool
	received, duplicates   int
	topics                 int
	seen                   []uint64
	visible                []*delivery // the latest last
	ended                  []ending    // one of a dispatch
	silent                 []*delivery
	pending                []*delivery
}

// ending is the highest round of a dispatch whose offer has ended.
type ending struct {
	dispatch unique.Handle[string]
	round    int
}

// delta is how a delivery changed the totals of a shard and the number of things held.
type delta struct{ received, duplicates, visible, reached, held int }

func (c *delta) add(d delta) {
	c.received += d.received
	c.duplicates += d.duplicates
	c.visible += d.visible
	c.reached += d.reached
	c.held += d.held
}

func (p *phone) deliver(d *delivery) (c delta) {
	if p.offline {
		return p.store(d)
	}
	if p.received == 0 {
		c.reached = 1
	}
	p.received++
	c.received = 1
	switch {
	case d.key == 0:
	case slices.Contains(p.seen, d.key):
		p.duplicates++
		c.duplicates = 1
	default:
		p.seen = append(p.seen, d.key)
		c.held++
	}
	if d.silent {
		p.receiveSilent(d, &c)
	} else {
		p.show(d, &c)
	}
	return c
}

// receiveSilent handles a message without text.
func (p *phone) receiveSilent(d *delivery, c *delta) {
	if len(p.silent) == maxSilent {
		p.silent = slices.Delete(p.silent, 0, 1)
		c.held--
	}
	p.silent = append(p.silent, d)
	c.held++
	if !d.ends || d.dispatch.Value() == "" {
		return
	}
	if i := p.endingOf(d); i < 0 {
		p.ended = append(p.ended, ending{d.dispatch, d.round})
		c.held++
	} else {
		p.ended[i].round = max(p.ended[i].round, d.round)
	}
	before := len(p.visible)
	p.visible = slices.DeleteFunc(p.visible, func(n *delivery) bool {
		return n.offers && n.dispatch == d.dispatch && n.round <= d.round
	})
	gone := before - len(p.visible)
	c.visible -= gone
	c.held -= gone
}

// endingOf returns the index of d's dispatch in p.ended, or -1.
func (p *phone) endingOf(d *delivery) int {
	return slices.IndexFunc(p.ended, func(e ending) bool { return e.dispatch == d.dispatch })
}

func (p *phone) show(d *delivery, c *delta) {
	if i := p.endingOf(d); d.offers && i >= 0 && d.round <= p.ended[i].round {
		return
	}
	replaced := -1
	if d.tagged {
		replaced = slices.IndexFunc(p.visible, func(n *delivery) bool { return n.tag == d.tag })
	}
	if replaced >= 0 {
		p.visible = slices.Delete(p.visible, replaced, replaced+1)
	} else {
		c.visible++
		c.held++
	}
	p.visible = append(p.visible, d)
}

// store keeps a message for an offline phone.
func (p *phone) store(d *delivery) (c delta) {
	if !d.until.After(d.at) {
		return c
	}
	if len(p.pending) == maxPending {
		c.held -= len(p.pending)
		p.pending = nil
	}
	p.pending = append(p.pending, d)
	c.held++
	return c
}

// comeOnline delivers the stored messages whose ttl has not ended.
func (p *phone) comeOnline(at time.Time) (c delta) {
	pending := p.pending
	p.offline, p.pending = false, nil
	c.held -= len(pending)
	for _, stored := range pending {
		if stored.until.After(at) {
			d := *stored
			d.at = at
			c.add(p.deliver(&d))
		}
	}
	return c
}

func (p *phone) device() Device {
	return Device{
		Visible: notifications(p.visible), Received: p.received, Duplicates: p.duplicates, Silent: notifications(p.silent),
	}
}

func notifications(of []*delivery) []Notification {
	var all []Notification
	for _, d := range of {
		all = append(all, d.notification())
	}
	return all
}
