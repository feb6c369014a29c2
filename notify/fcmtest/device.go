package fcmtest

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"time"
	"unique"
)

// Device is a phone as it is now.
type Device struct {
	// Visible are the notifications that it shows, the latest last.
	Visible []Notification `json:"visible"`
	// Received counts the messages that it got, Duplicates those of them whose event_id and type it had got before.
	Received   int `json:"received"`
	Duplicates int `json:"duplicates"`
	// Silent are the last messages without text, at most 32, the latest last.
	Silent []Notification `json:"silent"`
}

// Notification is a message as the phone has it.
type Notification struct {
	Tag      string    `json:"tag,omitempty"`
	Title    string    `json:"title,omitempty"`
	Body     string    `json:"body,omitempty"`
	Event    string    `json:"event_id,omitempty"` // this and the following are of its data
	Type     string    `json:"type,omitempty"`
	Dispatch string    `json:"dispatch_id,omitempty"`
	Round    int       `json:"round,omitempty"`
	At       time.Time `json:"at"` // when it reached the phone
}

const (
	maxSilent  = 32
	maxPending = 100 // what FCM keeps for a phone that isn't there; of more it keeps nothing
)

// delivery is a message on its way to one or many phones. The strings are shared between the phones: the same is said
// to thousands of them.
type delivery struct {
	tag, title, body             unique.Handle[string]
	event, typ, dispatch         unique.Handle[string]
	round                        int
	key                          uint64 // of event and type; 0 without an event
	silent, offers, ends, tagged bool
	at, until                    time.Time
}

func newDelivery(seed maphash.Seed, m *message, at time.Time) delivery {
	data := m.data()
	d := delivery{
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
		d.ends = d.silent
	}
	return d
}

func (d *delivery) notification() Notification {
	return Notification{
		Tag: d.tag.Value(), Title: d.title.Value(), Body: d.body.Value(), Event: d.event.Value(),
		Type: d.typ.Value(), Dispatch: d.dispatch.Value(), Round: d.round, At: d.at,
	}
}

// phone is a device's state, guarded by its shard.
type phone struct {
	dead, foreign, offline bool
	received, duplicates   int
	topics                 int
	seen                   map[uint64]struct{}
	visible                map[slot]shown
	shown                  int                           // how many were ever shown
	over                   map[unique.Handle[string]]int // the highest round that is over, by dispatch
	silent                 []delivery
	pending                []delivery
}

// slot is a place on the screen: a tag has one, and each message without a tag.
type slot struct {
	tag      unique.Handle[string]
	untagged int
}

type shown struct {
	delivery
	order int
}

// change is what a delivery did to the totals of a shard, and to what is held.
type change struct{ received, duplicates, visible, told, held int }

func (p *phone) deliver(d *delivery) (c change) {
	if p.offline {
		return p.store(d)
	}
	if p.received == 0 {
		c.told = 1
	}
	p.received++
	c.received = 1
	if d.key != 0 {
		if _, again := p.seen[d.key]; again {
			p.duplicates++
			c.duplicates = 1
		} else {
			if p.seen == nil {
				p.seen = map[uint64]struct{}{}
			}
			p.seen[d.key] = struct{}{}
			c.held++
		}
	}
	if d.silent {
		p.hear(d, &c)
	} else {
		p.show(d, &c)
	}
	return c
}

// hear takes a message without text.
func (p *phone) hear(d *delivery, c *change) {
	if len(p.silent) == maxSilent {
		p.silent = append(p.silent[:0], p.silent[1:]...)
		c.held--
	}
	p.silent = append(p.silent, *d)
	c.held++
	if !d.ends || d.dispatch.Value() == "" {
		return
	}
	if p.over == nil {
		p.over = map[unique.Handle[string]]int{}
	}
	if round, known := p.over[d.dispatch]; !known {
		c.held++
		p.over[d.dispatch] = d.round
	} else if round < d.round {
		p.over[d.dispatch] = d.round
	}
	for at, n := range p.visible {
		if n.offers && n.dispatch == d.dispatch && n.round <= d.round {
			delete(p.visible, at)
			c.visible--
			c.held--
		}
	}
}

func (p *phone) show(d *delivery, c *change) {
	if round, known := p.over[d.dispatch]; known && d.offers && d.round <= round {
		return
	}
	p.shown++
	at := slot{tag: d.tag}
	if !d.tagged {
		at.untagged = p.shown
	}
	if p.visible == nil {
		p.visible = map[slot]shown{}
	}
	if _, replaced := p.visible[at]; !replaced {
		c.visible++
		c.held++
	}
	p.visible[at] = shown{*d, p.shown}
}

// store keeps a message for a phone that isn't there.
func (p *phone) store(d *delivery) (c change) {
	if !d.until.After(d.at) {
		return c
	}
	if len(p.pending) == maxPending {
		c.held -= len(p.pending)
		p.pending = nil
	}
	p.pending = append(p.pending, *d)
	c.held++
	return c
}

// come delivers what was stored and is not over.
func (p *phone) come(at time.Time) (c change) {
	pending := p.pending
	p.offline, p.pending = false, nil
	c.held -= len(pending)
	for i := range pending {
		if d := &pending[i]; d.until.After(at) {
			d.at = at
			c.add(p.deliver(d))
		}
	}
	return c
}

func (c *change) add(d change) {
	c.received += d.received
	c.duplicates += d.duplicates
	c.visible += d.visible
	c.told += d.told
	c.held += d.held
}

func (p *phone) device() Device {
	all := make([]shown, 0, len(p.visible))
	for _, n := range p.visible {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b shown) int { return cmp.Compare(a.order, b.order) })
	d := Device{Received: p.received, Duplicates: p.duplicates}
	for i := range all {
		d.Visible = append(d.Visible, all[i].notification())
	}
	for i := range p.silent {
		d.Silent = append(d.Silent, p.silent[i].notification())
	}
	return d
}
