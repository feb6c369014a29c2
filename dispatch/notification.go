package dispatch

import "time"

// Audience is a group of drivers who are told the same of an event.
type Audience int

// The audiences.
const (
	// ToClaimant is the driver whom the event is about.
	ToClaimant Audience = iota + 1
	// ToTold is everyone else who was pushed the offer of that round.
	ToTold
	// ToEligible is everyone who could take the dispatch now.
	ToEligible
)

// Telling is what an event is to one audience. A driver who belongs to several hears the first.
type Telling struct {
	To Audience
	// Type is the event's name to them: who lost hears dispatch.taken of a dispatch.accepted.
	Type EventType
	// Silent tells the app and not its user.
	Silent bool
}

// EventReminder is pushed to who has a dispatch, some time before the work starts.
const EventReminder EventType = "dispatch.reminder"

// Pushed returns what is pushed of the event, and to whom. The end of what nobody has closed is not: it is written at
// night, and the work is long over. Nor is a change that leaves everybody the offer they have.
func (e Event) Pushed() []Telling {
	switch {
	case e.Actor == System && e.ReasonCode == ReasonOverdue:
		return nil
	case e.Type == EventUpdated && (e.ReasonCode == ReasonWindowChanged || e.ReasonCode == ReasonExtended):
		return nil
	}
	return e.Type.Tellings()
}

// Tellings returns what is told of an event, and to whom; nothing of most.
func (t EventType) Tellings() []Telling {
	switch t {
	case EventCreated, EventOpened:
		return []Telling{{To: ToEligible, Type: EventOpened}}
	case EventReopened, EventUpdated:
		return []Telling{{To: ToEligible, Type: t}}
	case EventAccepted:
		return []Telling{{To: ToClaimant, Type: EventAccepted}, {To: ToTold, Type: EventTaken, Silent: true}}
	case EventUnassigned, EventReminder:
		return []Telling{{To: ToClaimant, Type: t}}
	case EventCanceled:
		return []Telling{{To: ToClaimant, Type: t}, {To: ToTold, Type: t, Silent: true}}
	case EventExpired:
		return []Telling{{To: ToTold, Type: t, Silent: true}}
	}
	return nil
}

// Offers reports whether who hears it may accept.
func (t EventType) Offers() bool {
	switch t {
	case EventOpened, EventReopened, EventUpdated:
		return true
	}
	return false
}

// afterglow is how long an app is told that an offer is over: by itself it forgets the offer when it ends.
const afterglow = 10 * time.Minute

// TellUntil returns when telling t of the dispatch is of no use any more.
func (d *Dispatch) TellUntil(t Telling, at time.Time) time.Time {
	end := d.ExpiresAt
	switch {
	case t.Type.Offers():
		return end
	case t.Type == EventReminder:
		return d.WorkStartsAt
	case t.Silent:
		at = at.Add(afterglow)
	default:
		end, at = d.WorkEndsAt, at.Add(time.Hour)
	}
	if end.Before(at) {
		return at
	}
	return end
}

// Superseded reports whether telling driver t about the given round has been overtaken by what became of the dispatch.
func (d *Dispatch) Superseded(t EventType, silent bool, driver DriverID, round int) bool {
	switch {
	case t.Offers():
		return d.Round != round || d.Status != Pending && d.Status != Scheduled
	case t == EventReminder:
		return d.Round != round || d.Status != Accepted || !d.HeldBy(driver)
	case t == EventAccepted:
		return d.Round != round || !d.HeldBy(driver) || d.Status == Canceled
	case silent:
		return d.Round != round // the offer stands again
	}
	return false
}

// Push is one event to be told to one device, or to a topic of many.
type Push struct {
	ID       NotificationID
	Event    EventID
	Type     EventType
	Silent   bool
	Round    int
	Dispatch Dispatch  // as it was at Read
	Read     time.Time // by this process's clock
	Driver   DriverID  // "" for a topic
	Device   Device    // of a topic: none
	Topic    string    // "" for a device
	// Attempts counts those that failed.
	Attempts int
	// At is when what it tells of happened, Until when it is of no use any more.
	At, Until time.Time
	// Leased is when the right to send it ends.
	Leased time.Time
}

// Reread has p be about the dispatch as it is now. What offers it is of use for as long as it is open, which may have
// changed since the push was written.
func (p *Push) Reread(d Dispatch) {
	p.Dispatch = d
	if p.Type.Offers() && p.Round == d.Round {
		p.Until = d.ExpiresAt
	}
}

// NotificationStatus is where a notification stands.
type NotificationStatus string

// A notification is PENDING until it is SENT, DEAD for somebody to look at, or DROPPED because it was of no use any
// more.
const (
	NotificationPending NotificationStatus = "PENDING"
	NotificationSent    NotificationStatus = "SENT"
	NotificationDead    NotificationStatus = "DEAD"
	NotificationDropped NotificationStatus = "DROPPED"
)

// Notification is one row of the outbox as operators see it.
type Notification struct {
	ID        NotificationID
	Event     EventID
	Type      EventType
	Dispatch  ID
	Round     int
	Driver    DriverID // "" for a topic
	Device    DeviceID
	Topic     string
	Silent    bool
	Status    NotificationStatus
	Attempts  int
	Result    string    // of the last attempt
	Reason    string    // in the push service's words
	At        time.Time // when what it tells of happened
	CreatedAt time.Time
	NextAt    *time.Time // when it is tried next, or leased until
	SentAt    *time.Time // when the push service accepted it
	Until     time.Time
}

// Funnel counts drivers in one round of a dispatch.
type Funnel struct {
	Told     int // a push of the offer was written for them
	Accepted int // the push service took it
	Seen     int // their app showed it
	Tapped   int // they tapped Accept
	Won      int
}

// Told is what expanding an event into pushes has come to.
type Told struct {
	Dispatch Dispatch
	Event    Event
	// Pushes are leased by who expanded it, Left are due for whoever leases them first.
	Pushes []Push
	Left   int
	// Dropped counts the pushes that were overtaken before anybody sent them.
	Dropped int
	// More says that this was not all of it.
	More bool
}

// Settled is what became of one push that was leased.
type Settled struct {
	ID NotificationID
	// Status is PENDING for one that is to be tried again, After from now.
	Status   NotificationStatus
	After    time.Duration
	Attempts int
	Result   string
	Reason   string
}

// Topic is a large audience that is told together that an offer is over.
type Topic struct {
	Name string
	// Ended says that its members are to be unsubscribed; until then, subscribed.
	Ended bool
}

// TopicOf names the audience of a dispatch.
func TopicOf(id ID) string { return "dispatch-" + string(id) }
