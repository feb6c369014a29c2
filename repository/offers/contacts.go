package offers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/dispatches"
	"firsttap/repository/pushes"
)

// contactSources are the tables with rows of a driver in a round of a dispatch, each with its index on these columns.
var contactSources = [...]struct{ table, index, where string }{
	{"notifications", "ix_notifications_driver", "driver_id <> '' AND type IN " + pushes.OfferTypes + " AND "},
	{"offers", "PRIMARY", ""},
	{"claims", "uq_claims_round", ""},
	{"taps", "PRIMARY", "result <> 'OFFER_STALE' AND "},
}

// Offers returns the offers of the dispatch to each driver in the round, 0 for all, by round and driver, and the cursor of the
// next page, "" after the last. ErrNotFound, ErrBadCursor.
func (s *Offers) Offers(
	ctx context.Context, id dispatch.ID, round int, page dispatch.Page,
) (items []dispatch.Offered, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listOffers(db, id, round, page)
		return err
	})
	return items, next, err
}

func (s *Offers) listOffers(db database.Tx, id dispatch.ID, round int, page dispatch.Page) ([]dispatch.Offered, string, error) {
	d, _, err := dispatches.Find(db, id)
	if err != nil {
		return nil, "", err
	}
	keys, next, err := s.contactKeys(db, id, round, page)
	if err != nil || len(keys) == 0 {
		return nil, "", err
	}
	b := contactPage{rounds: rounds{db: db, d: &d}, keys: keys, contacts: map[driverRound]*dispatch.OfferHistory{}}
	for _, k := range keys {
		b.contacts[k] = &dispatch.OfferHistory{Driver: k.DriverID, Round: k.Round}
	}
	if err := b.load(); err != nil {
		return nil, "", database.Unavailable(err)
	}
	items := make([]dispatch.Offered, len(keys))
	for i, k := range keys {
		items[i] = dispatch.Offered{Dispatch: d, Contact: *b.contacts[k]}
	}
	return items, next, nil
}

// contactKeys returns the rounds and drivers on the page. It reads no more than a page from each table.
func (s *Offers) contactKeys(db database.Tx, id dispatch.ID, round int, page dispatch.Page) ([]driverRound, string, error) {
	where, args := "dispatch_id = ?", []any{id}
	if round != 0 {
		where, args = where+" AND round = ?", append(args, round)
	}
	if page.Cursor != "" {
		at, last, err := database.ParseCursor(database.ContactList, page.Cursor, dispatch.ParseDriverID)
		if err != nil {
			return nil, "", err
		}
		where, args = where+" AND (round > ? OR round = ? AND driver_id > ?)", append(args, at, at, last)
	}
	var all []any
	queries := make([]string, len(contactSources))
	for i, source := range contactSources {
		queries[i] = "SELECT * FROM (SELECT DISTINCT round, driver_id FROM " + source.table + " {force " + source.index + "} WHERE " +
			source.where + where +
			" ORDER BY round, driver_id LIMIT ?) q"
		all = append(append(all, args...), page.Limit+1)
	}
	var keys []driverRound
	err := db.Raw(strings.Join(queries, " UNION ")+" ORDER BY round, driver_id LIMIT ?", append(all, page.Limit+1)...).Scan(&keys).Error
	if err != nil {
		return nil, "", database.Unavailable(err)
	}
	if len(keys) <= page.Limit {
		return keys, "", nil
	}
	keys = keys[:page.Limit]
	last := keys[len(keys)-1]
	return keys, database.Cursor(database.ContactList, int64(last.Round), last.DriverID), nil
}

// contactPage is one page of contacts.
type contactPage struct {
	rounds
	keys     []driverRound
	contacts map[driverRound]*dispatch.OfferHistory
}

// contactFacts is what one table holds about a contact.
type contactFacts struct {
	Of            driverRound `gorm:"embedded"`
	Told, Sent    *int64
	Seen, Tapped  *int64
	Declined      *int64
	DeclineReason string
	Claim         dispatch.Outcome
}

const contactFactsSQL = `
SELECT round, driver_id, MIN(created_at) told, MIN(CASE WHEN state = 1 THEN sent_at END) sent, NULL seen, NULL tapped, NULL declined,
  NULL decline_reason, NULL claim
  FROM notifications WHERE dispatch_id = ? AND round IN ? AND driver_id IN ? AND type IN ` + pushes.OfferTypes + ` GROUP BY round, driver_id
UNION ALL SELECT round, driver_id, NULL, NULL, seen_at, NULL, declined_at, decline_reason, NULL
  FROM offers WHERE dispatch_id = ? AND round IN ? AND driver_id IN ?
UNION ALL SELECT round, driver_id, NULL, NULL, NULL, NULL, NULL, NULL, outcome
  FROM claims WHERE dispatch_id = ? AND round IN ? AND driver_id IN ?
UNION ALL SELECT round, driver_id, NULL, NULL, NULL, MIN(at), NULL, NULL, NULL
  FROM taps WHERE dispatch_id = ? AND round IN ? AND driver_id IN ? AND result <> 'OFFER_STALE' GROUP BY round, driver_id`

func (b *contactPage) load() error {
	var which []int
	var drivers []dispatch.DriverID
	for _, k := range b.keys {
		which, drivers = append(which, k.Round), append(drivers, k.DriverID)
	}
	which, drivers = unique(which), unique(drivers)
	var args []any
	for range contactSources {
		args = append(args, b.d.ID, which, drivers)
	}
	var traces []contactFacts
	if err := b.db.Raw(contactFactsSQL, args...).Scan(&traces).Error; err != nil {
		return err
	}
	for _, t := range traces {
		if c := b.contacts[t.Of]; c != nil {
			t.mergeInto(c)
		}
	}
	if err := b.gaveBack(which[len(which)-1], drivers); err != nil {
		return err
	}
	return b.setEndings(which)
}

// gaveBack marks the contacts of drivers that withdrew in an earlier round. last is the latest round on the page.
func (b *contactPage) gaveBack(last int, drivers []dispatch.DriverID) error {
	if last == 1 {
		return nil
	}
	var withdrawn []driverRound
	err := b.db.Raw(`SELECT driver_id, MIN(round) round FROM claims WHERE dispatch_id = ? AND driver_id IN ? AND outcome = 'WITHDRAWN'
		GROUP BY driver_id`, b.d.ID, drivers).Scan(&withdrawn).Error
	for _, first := range withdrawn {
		for k, c := range b.contacts {
			c.Withdrew = c.Withdrew || k.DriverID == first.DriverID && k.Round > first.Round
		}
	}
	return err
}

func (t *contactFacts) mergeInto(c *dispatch.OfferHistory) {
	c.NotifiedAt, c.SentAt = cmp.Or(c.NotifiedAt, database.OptionalTime(t.Told)), cmp.Or(c.SentAt, database.OptionalTime(t.Sent))
	c.SeenAt, c.DeclinedAt = cmp.Or(c.SeenAt, database.OptionalTime(t.Seen)), cmp.Or(c.DeclinedAt, database.OptionalTime(t.Declined))
	c.TappedAt = cmp.Or(c.TappedAt, database.OptionalTime(t.Tapped))
	c.DeclineReason, c.Claim = cmp.Or(c.DeclineReason, t.DeclineReason), cmp.Or(c.Claim, t.Claim)
}

// setEndings sets how each earlier round ended: taken if it has a winner, expired if the next round began by reopening the
// dispatch, and revoked otherwise, as its terms changed.
func (b *contactPage) setEndings(which []int) error {
	if which[0] >= b.d.Round {
		return nil
	}
	winners, err := b.winners()
	if err != nil {
		return err
	}
	var reopened []int
	err = b.db.Raw(
		"SELECT DISTINCT round FROM events {force ix_events_dispatch} WHERE dispatch_id = ? AND type = ?", b.d.ID, dispatch.EventReopened,
	).Scan(&reopened).Error
	if err != nil {
		return err
	}
	for k, c := range b.contacts {
		switch {
		case k.Round >= b.d.Round:
		case winners[k.Round] != "":
			c.Ended = dispatch.OfferTaken
		case slices.Contains(reopened, k.Round+1):
			c.Ended = dispatch.OfferExpired
		default:
			c.Ended = dispatch.OfferRevoked
		}
	}
	return nil
}

// unique returns the different values, sorted.
func unique[T cmp.Ordered](all []T) []T {
	set := make(map[T]bool, len(all))
	for _, v := range all {
		set[v] = true
	}
	return slices.Sorted(maps.Keys(set))
}
