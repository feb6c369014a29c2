package drivers

import (
	"context"
	"slices"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// Drivers returns the drivers that q selects, either the erased ones or the others, newest first, and the cursor of the next page, "" after
// the last. With q.Text a page may have fewer drivers than q.Limit, or none, although there is a next one. ErrBadCursor, ErrUnavailable.
func (s *Drivers) Drivers(ctx context.Context, q dispatch.DriverQuery) (items []dispatch.DriverRecord, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = listDrivers(db, q)
		return err
	})
	return items, next, err
}

func listDrivers(db database.Tx, q dispatch.DriverQuery) (items []dispatch.DriverRecord, next string, err error) {
	list := search.List[Row]{
		Index:  wordIndex,
		Of:     func(ids []string) database.Listing { return driverListing(q, ids) },
		Cursor: func(row *Row) string { return database.Cursor(database.DriverList, 0, row.ID) },
		Words:  func(row *Row) (string, []string) { return string(row.ID), row.words() },
	}
	var rows []Row
	if q.Text == "" {
		rows, next, err = database.ReadListing(db, list.Of(nil), q.Page, list.Cursor)
	} else {
		rows, next, err = list.Find(db, driverTerms(q.Text), q.Page)
	}
	if err != nil {
		return nil, "", err
	}
	items = make([]dispatch.DriverRecord, len(rows))
	for i := range rows {
		if items[i], err = rows[i].Record(); err != nil {
			return nil, "", database.Unavailable(err)
		}
	}
	return items, next, nil
}

// driverListing is the list of the drivers that q selects, whatever its text, or of those among them that have one of the identifiers
// unless ids is nil.
func driverListing(q dispatch.DriverQuery, ids []string) database.Listing {
	index, where, args := "PRIMARY", "v.erased_at IS NULL", []any(nil)
	if q.Erased {
		index, where = "ix_drivers_erased", "v.erased = 1"
	}
	suspended := q.Suspended != nil && *q.Suspended
	if suspended {
		where += " AND v.suspended_until > {now}"
	} else if q.Suspended != nil {
		where += " AND (v.suspended_until IS NULL OR v.suspended_until <= {now})"
	}
	switch {
	case ids != nil:
		index, where, args = "PRIMARY", where+" AND v.id IN ?", append(args, ids)
	case q.Erased: // they are few, and so are the suspended, whom the server sorts
	case suspended:
		index, where = "ix_drivers_suspended", where+" AND v.on_duty IN (0, 1)"
	case q.Region != "" || q.VehicleClass != "" || q.OnDuty != nil:
		return listingByRegion(q, where)
	}
	if q.Region != "" {
		where, args = where+" AND {json_contains v.regions, ?}", append(args, jsonString(q.Region))
	}
	if q.VehicleClass != "" {
		where, args = where+" AND v.vehicle_class = ?", append(args, q.VehicleClass)
	}
	if q.OnDuty != nil {
		where, args = where+" AND v.on_duty = ?", append(args, *q.OnDuty)
	}
	of := database.Part{Select: "SELECT v.* FROM drivers v {force " + index + "}", Where: where, Args: args}
	return database.Listing{Kind: database.DriverList, Prefix: dispatch.DriverPrefix, ID: "v.id", Parts: []database.Part{of}}
}

// listingByRegion is the list by region, class or duty of the drivers v for whom where is true. It joins those on duty and those off duty,
// each of which an index has in the order of the list.
func listingByRegion(q dispatch.DriverQuery, where string) database.Listing {
	index, args := "ix_driver_regions_duty", []any{q.Region}
	where = "r.region = ? AND " + where
	if q.VehicleClass != "" {
		index, where, args = "PRIMARY", where+" AND r.vehicle_class = ?", append(args, q.VehicleClass)
	}
	l := database.Listing{Kind: database.DriverList, Prefix: dispatch.DriverPrefix, ID: "r.driver_id"}
	for _, duty := range []bool{false, true} {
		if q.OnDuty == nil || *q.OnDuty == duty {
			l.Parts = append(l.Parts, database.Part{
				Select: "SELECT v.* FROM driver_regions r {force " + index + "} JOIN drivers v {force PRIMARY} ON v.id = r.driver_id",
				Where:  where + " AND r.on_duty = ?", Args: append(slices.Clip(args), duty),
			})
		}
	}
	return l
}
