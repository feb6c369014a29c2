package repository

import (
	"context"
	"strings"
	"unicode"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

func (s *Store) listDrivers(ctx context.Context, q dispatch.DriverQuery) ([]dispatch.DriverRecord, string, error) {
	where, args := s.driverFilter(q)
	db := s.general.WithContext(ctx)
	var rows []driverRow
	var next string
	var err error
	switch {
	case q.Erased:
		rows, next, err = s.erasedDrivers(db, q, where, args)
	case q.Region == "" && q.VehicleClass == "" && q.OnDuty == nil:
		rows, next, err = newestFirst(db.Table("drivers v").Where(where, args...), driverList, "v.id", q.Page, (*driverRow).key)
	default:
		rows, next, err = s.driversByIndex(db, q, where, args)
	}
	if err != nil {
		return nil, "", err
	}
	items := make([]dispatch.DriverRecord, len(rows))
	for i := range rows {
		if items[i], err = rows[i].record(); err != nil {
			return nil, "", unavailable(err)
		}
	}
	return items, next, nil
}

func (row *driverRow) key() string { return string(row.ID) }

// driverFilter returns the conditions of q, on drivers v, that driver_regions knows nothing of.
func (s *Store) driverFilter(q dispatch.DriverQuery) (string, []any) {
	where, args := "v.erased_at IS NULL", []any(nil)
	if q.Erased {
		where = "v.erased = 1"
	}
	if now := s.dialect.now(); q.Suspended != nil && *q.Suspended {
		where += " AND v.suspended_until > " + now
	} else if q.Suspended != nil {
		where += " AND (v.suspended_until IS NULL OR v.suspended_until <= " + now + ")"
	}
	if q.Text != "" {
		var text string
		text, args = textSQL(q.Text, "v.name", "v.phone", "v.firebase_uid")
		where += " AND " + text
	}
	return where, args
}

// erasedDrivers reads a page of erased drivers, who are not in driver_regions, by an index of their own in the order of the list.
func (s *Store) erasedDrivers(db *gorm.DB, q dispatch.DriverQuery, where string, filter []any) ([]driverRow, string, error) {
	of, args := s.driverColumns(q)
	return newestFirst(db.Table("drivers v"+s.dialect.forceIndex("ix_drivers_erased")).Where(where+of, append(filter, args...)...),
		driverList, "v.id", q.Page, (*driverRow).key)
}

// driverColumns returns what the columns of drivers v say of the region, class and duty of q, as further conditions.
func (s *Store) driverColumns(q dispatch.DriverQuery) (where string, args []any) {
	if q.Region != "" {
		where, args = where+" AND "+s.dialect.hasRegion, append(args, jsonString(q.Region))
	}
	if q.VehicleClass != "" {
		where, args = where+" AND v.vehicle_class = ?", append(args, q.VehicleClass)
	}
	if q.OnDuty != nil {
		where, args = where+" AND v.on_duty = ?", append(args, *q.OnDuty)
	}
	return where, args
}

// driversByIndex reads a page of drivers by region, class or duty. It joins parts, each of which reads an index in the order of the list:
// those on duty, those off duty, and those that are not indexed. A driver is in one of them.
func (s *Store) driversByIndex(db *gorm.DB, q dispatch.DriverQuery, where string, filter []any) ([]driverRow, string, error) {
	var after []any
	if q.Cursor != "" {
		_, last, err := parseCursor(driverList, q.Cursor, parseAnyID)
		if err != nil {
			return nil, "", err
		}
		after = []any{last}
	}
	index, ofClass, class := "ix_driver_regions_duty", "", []any(nil)
	if q.VehicleClass != "" {
		index, ofClass, class = "PRIMARY", " AND r.vehicle_class = ?", []any{q.VehicleClass}
	}
	duties := []bool{false, true}
	if q.OnDuty != nil {
		duties = []bool{*q.OnDuty}
	}
	var parts []string
	var args []any
	add := func(id, from string, of ...any) {
		if len(after) > 0 {
			from += " AND " + id + " < ?"
		}
		parts = append(parts, "SELECT * FROM (SELECT v.id FROM "+from+" AND "+where+" ORDER BY "+id+" DESC LIMIT ?) p")
		args = append(append(append(append(args, of...), after...), filter...), q.Limit+1)
	}
	for _, duty := range duties {
		add("r.driver_id", "driver_regions r"+s.dialect.forceIndex(index)+" JOIN drivers v"+s.dialect.forceIndex("PRIMARY")+
			" ON v.id = r.driver_id WHERE r.region = ?"+ofClass+" AND r.on_duty = ? AND v.unindexed = 0", append(append([]any{q.Region}, class...), duty)...)
	}
	unindexed, of := s.driverColumns(q)
	add("v.id", s.unindexedDrivers()+unindexed, of...)
	var rows []driverRow
	err := db.Raw("SELECT v.* FROM ("+strings.Join(parts, " UNION ALL ")+") found JOIN drivers v ON v.id = found.id ORDER BY v.id DESC LIMIT ?",
		append(args, q.Limit+1)...).Scan(&rows).Error
	if err != nil || len(rows) <= q.Limit {
		return rows, "", unavailable(err)
	}
	rows = rows[:q.Limit]
	return rows, cursor(driverList, 0, rows[q.Limit-1].ID), nil
}

// textSQL selects rows that contain the text in one of the columns or in their identifier, in any case. The database lowers
// both sides, so that both follow its own rules for letters.
func textSQL(text string, columns ...string) (string, []any) {
	like := "%" + likeEscaper.Replace(text) + "%"
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		columns = append(columns, "id") // the column is ASCII, and MySQL compares it with ASCII only
	}
	conditions := make([]string, len(columns))
	args := make([]any, len(columns))
	for i, c := range columns {
		conditions[i], args[i] = "LOWER("+c+") LIKE LOWER(?) ESCAPE '!'", like
	}
	return "(" + strings.Join(conditions, " OR ") + ")", args
}

var likeEscaper = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")
