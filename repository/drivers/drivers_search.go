package drivers

import (
	"context"
	"strings"

	"firsttap/dispatch"
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// Drivers returns the drivers that q selects, either the erased ones or the others, newest first, and the cursor of the next page, "" after
// the last.
func (s *Drivers) Drivers(ctx context.Context, q dispatch.DriverQuery) (items []dispatch.DriverRecord, next string, err error) {
	err = s.db.List(ctx, func(db database.Tx) error {
		items, next, err = s.listDrivers(db, q)
		return err
	})
	return items, next, err
}

func (s *Drivers) listDrivers(db database.Tx, q dispatch.DriverQuery) ([]dispatch.DriverRecord, string, error) {
	var rows []Row
	var next string
	var err error
	if q.Text == "" {
		rows, next, err = s.driversBy(db, q)
	} else {
		rows, next, err = s.searchDrivers(db, q)
	}
	if err != nil {
		return nil, "", err
	}
	items := make([]dispatch.DriverRecord, len(rows))
	for i := range rows {
		if items[i], err = rows[i].Record(); err != nil {
			return nil, "", database.Unavailable(err)
		}
	}
	return items, next, nil
}

// driversBy reads a page of the drivers that q selects, whatever its text.
func (s *Drivers) driversBy(db database.Tx, q dispatch.DriverQuery) ([]Row, string, error) {
	where := driverFilter(q)
	switch suspended := q.Suspended != nil && *q.Suspended; {
	case q.Erased:
		return driversByColumns(db, q, "ix_drivers_erased", where)
	case suspended:
		return driversByColumns(db, q, "ix_drivers_suspended", where+" AND v.on_duty IN (0, 1)")
	case q.Region != "" || q.VehicleClass != "" || q.OnDuty != nil:
		return driversByIndex(db, q, where)
	default:
		return database.NewestFirst(db.Table("drivers v").Where(where), database.DriverList, "v.id", q.Page, (*Row).key)
	}
}

// searchDrivers finds the drivers of q who have all the terms of its text. It reads those who may have the rarest term, or, if all terms
// are common, the suspended or the list, the newest first, and checks each by the row. After searchReads of them it returns what it has
// found so far, with a cursor to go on.
func (s *Drivers) searchDrivers(db database.Tx, q dispatch.DriverQuery) (matches []Row, rest string, err error) {
	if _, err := database.LastBefore(database.DriverList, q.Cursor); err != nil {
		return nil, "", err
	}
	terms := driverTerms(q.Text)
	if len(terms) == 0 {
		return nil, "", nil
	}
	source, err := s.sourceFor(db, q, terms)
	if err != nil {
		return nil, "", err
	}
	read := search.Scan[Row](func(cursor string, size int) ([]Row, string, error) {
		q := q
		q.Page = dispatch.Page{Cursor: cursor, Limit: size}
		if source == nil {
			return s.driversBy(db, q)
		}
		return s.driversOf(db, q, source)
	}).Where(func(row *Row) bool { return search.HaveAll(terms, string(row.ID), row.words()) })
	matches, rest, err = read.Page(q.Cursor, q.Limit)
	if len(matches) > q.Limit {
		matches = matches[:q.Limit]
		rest = database.Cursor(database.DriverList, 0, matches[q.Limit-1].ID)
	}
	return matches, rest, err
}

// sourceFor returns where a search reads identifiers: from the entries of the rarest term, or, if all are common and q asks for them, from
// the suspended drivers. Without either it returns nil, which means the list.
func (s *Drivers) sourceFor(db database.Tx, q dispatch.DriverQuery, terms []search.Term) (search.Source, error) {
	i, rare, err := s.words.Rarest(db, terms[:min(len(terms), search.CountedTerms)])
	switch {
	case err != nil:
		return nil, err
	case rare:
		return s.words.Rare(db, terms[i]), nil
	case q.Suspended == nil || !*q.Suspended || q.Erased:
		return nil, nil
	}
	of, args := driverColumns(q)
	from := "drivers v {force ix_drivers_suspended} WHERE " + driverFilter(q) + " AND v.on_duty IN (0, 1)" + of
	return search.ReadOnce(db, []search.Part{{Column: "id", From: from, Args: args}}), nil
}

// driversOf reads the next drivers of the source, and returns those that q selects, whatever its text.
func (s *Drivers) driversOf(db database.Tx, q dispatch.DriverQuery, source search.Source) (rows []Row, next string, err error) {
	last, err := database.LastBefore(database.DriverList, q.Cursor)
	if err != nil {
		return nil, "", err
	}
	ids, err := source(last, q.Limit)
	if err != nil || len(ids) == 0 {
		return nil, "", err
	}
	if len(ids) > q.Limit {
		ids = ids[:q.Limit]
		next = database.Cursor(database.DriverList, 0, ids[q.Limit-1])
	}
	of, args := driverColumns(q)
	err = db.Raw("SELECT v.* FROM drivers v {force PRIMARY} WHERE v.id IN ? AND "+driverFilter(q)+of+" ORDER BY v.id DESC",
		append([]any{ids}, args...)...).Scan(&rows).Error
	return rows, next, database.Unavailable(err)
}

func (row *Row) key() string { return string(row.ID) }

// driverFilter returns the conditions of q, on drivers v, that driver_regions knows nothing of.
func driverFilter(q dispatch.DriverQuery) string {
	where := "v.erased_at IS NULL"
	if q.Erased {
		where = "v.erased = 1"
	}
	if q.Suspended != nil && *q.Suspended {
		where += " AND v.suspended_until > {now}"
	} else if q.Suspended != nil {
		where += " AND (v.suspended_until IS NULL OR v.suspended_until <= {now})"
	}
	return where
}

// driversByColumns reads a page of the erased or of the suspended drivers by an index that has few others.
func driversByColumns(db database.Tx, q dispatch.DriverQuery, index, where string) ([]Row, string, error) {
	of, args := driverColumns(q)
	return database.NewestFirst(
		db.Table("drivers v {force "+index+"}").Where(where+of, args...), database.DriverList, "v.id", q.Page, (*Row).key,
	)
}

// driverColumns returns what the columns of drivers v say of the region, class and duty of q, as further conditions.
func driverColumns(q dispatch.DriverQuery) (where string, args []any) {
	if q.Region != "" {
		where, args = where+" AND {json_contains v.regions, ?}", append(args, jsonString(q.Region))
	}
	if q.VehicleClass != "" {
		where, args = where+" AND v.vehicle_class = ?", append(args, q.VehicleClass)
	}
	if q.OnDuty != nil {
		where, args = where+" AND v.on_duty = ?", append(args, *q.OnDuty)
	}
	return where, args
}

// driversByIndex reads a page of drivers by region, class or duty. It joins those on duty and those off duty, each of which an index has in
// the order of the list.
func driversByIndex(db database.Tx, q dispatch.DriverQuery, where string) ([]Row, string, error) {
	last, err := database.LastBefore(database.DriverList, q.Cursor)
	if err != nil {
		return nil, "", err
	}
	index, also, more := "ix_driver_regions_duty", "", []any(nil)
	if q.VehicleClass != "" {
		index, also, more = "PRIMARY", " AND r.vehicle_class = ?", []any{q.VehicleClass}
	}
	if last != "" {
		also, more = also+" AND r.driver_id < ?", append(more, last)
	}
	duties := []bool{false, true}
	if q.OnDuty != nil {
		duties = []bool{*q.OnDuty}
	}
	parts, args := make([]string, len(duties)), []any(nil)
	for i, duty := range duties {
		parts[i] = "SELECT * FROM (SELECT v.id FROM driver_regions r {force " + index + "} JOIN drivers v {force PRIMARY} ON v.id = r.driver_id" +
			" WHERE r.region = ? AND r.on_duty = ?" + also + " AND " + where + " ORDER BY r.driver_id DESC LIMIT ?) p"
		args = append(append(append(args, q.Region, duty), more...), q.Limit+1)
	}
	var rows []Row
	err = db.Raw("SELECT v.* FROM ("+strings.Join(parts, " UNION ALL ")+") found JOIN drivers v ON v.id = found.id ORDER BY v.id DESC LIMIT ?",
		append(args, q.Limit+1)...).Scan(&rows).Error
	if err != nil || len(rows) <= q.Limit {
		return rows, "", database.Unavailable(err)
	}
	rows = rows[:q.Limit]
	return rows, database.Cursor(database.DriverList, 0, rows[q.Limit-1].ID), nil
}
