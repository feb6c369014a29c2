package offers

import (
	"context"
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

// contactsSQL selects adminRows of the dispatch p and of the rounds and drivers in k.
func contactsSQL(k string) string {
	return `SELECT k.round, k.driver_id, ` + historyColumns("k.round", "k.driver_id") + `,
	(SELECT MIN(n.created_at) FROM notifications n {force ix_notifications_driver} WHERE n.dispatch_id = p.id AND n.round = k.round
		AND n.driver_id = k.driver_id AND n.type IN ` + pushes.OfferTypes + `) notified_at,
	COALESCE((SELECT c.outcome FROM claims c WHERE c.dispatch_id = p.id AND c.round = k.round AND c.driver_id = k.driver_id), '') claim
	FROM (` + k + `) k JOIN dispatches p ON p.id = @id
	LEFT JOIN offers o ON o.dispatch_id = p.id AND o.round = k.round AND o.driver_id = k.driver_id ORDER BY k.round, k.driver_id`
}

// adminRow is what an admin reads of a driver's offer.
type adminRow struct {
	Round      int
	DriverID   dispatch.DriverID
	History    historyRow `gorm:"embedded"`
	NotifiedAt *int64
	Claim      dispatch.Outcome
}

// Offers returns the offers of the dispatch to each driver in the round, 0 for all, by round and driver, and the cursor of the
// next page, "" after the last. ErrNotFound, ErrBadCursor.
func (s *Offers) Offers(
	ctx context.Context, id dispatch.ID, round int, page dispatch.Page,
) (items []dispatch.Offered, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = listOffers(db, id, round, page)
		return err
	})
	return items, next, err
}

func listOffers(db database.Tx, id dispatch.ID, inRound int, page dispatch.Page) ([]dispatch.Offered, string, error) {
	d, _, err := dispatches.Find(db, id)
	if err != nil {
		return nil, "", err
	}
	rows, next, err := contactPage(db, id, inRound, page)
	if err != nil || len(rows) == 0 {
		return nil, "", err
	}
	var rounds map[int]round
	if rows[0].Round < d.Round {
		if rounds, err = readRounds(db, id); err != nil {
			return nil, "", database.Unavailable(err)
		}
	}
	items := make([]dispatch.Offered, len(rows))
	for i := range rows {
		r := &rows[i]
		h := r.History.of(r.DriverID, r.Round)
		h.NotifiedAt, h.Claim = database.OptionalTime(r.NotifiedAt), r.Claim
		if r.Round < d.Round {
			h.Ended = ending(rounds, r.Round)
		}
		items[i] = dispatch.Offered{Dispatch: d, Contact: h}
	}
	return items, next, nil
}

// ending returns how an earlier round ended: taken if it has a winner, expired if the next round began by reopening the dispatch, and
// revoked otherwise, as its terms changed.
func ending(rounds map[int]round, of int) dispatch.OfferStatus {
	switch {
	case rounds[of].Winner != "":
		return dispatch.OfferTaken
	case rounds[of+1].Reopened:
		return dispatch.OfferExpired
	}
	return dispatch.OfferRevoked
}

// contactPage reads no more than a page of keys from each table.
func contactPage(db database.Tx, id dispatch.ID, round int, page dispatch.Page) (rows []adminRow, next string, err error) {
	where, values := "dispatch_id = @id", map[string]any{"id": id, "round": round, "limit": page.Limit + 1}
	if round != 0 {
		where += " AND round = @round"
	}
	if page.Cursor != "" {
		values["at"], values["last"], err = database.ParseCursor(database.ContactList, page.Cursor, dispatch.ParseDriverID)
		if err != nil {
			return nil, "", err
		}
		where += " AND (round > @at OR round = @at AND driver_id > @last)"
	}
	const inOrder = " ORDER BY round, driver_id LIMIT @limit "
	queries := make([]string, len(contactSources))
	for i, source := range contactSources {
		queries[i] = "SELECT * FROM (SELECT DISTINCT round, driver_id FROM " + source.table + " {force " + source.index + "} WHERE " +
			source.where + where + inOrder + ") q"
	}
	if err := db.Raw(contactsSQL(strings.Join(queries, " UNION ")+inOrder), values).Scan(&rows).Error; err != nil {
		return nil, "", database.Unavailable(err)
	}
	rows, next = database.Trim(rows, page.Limit, func(last *adminRow) string {
		return database.Cursor(database.ContactList, int64(last.Round), last.DriverID)
	})
	return rows, next, nil
}
