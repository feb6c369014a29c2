package repository

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

type timedRow struct {
	Row dispatchRow `gorm:"embedded"`
	Now int64
}

// find reads a dispatch and the database's time in one statement.
func (s *Store) find(db *gorm.DB, id dispatch.ID, locking string) (dispatch.Dispatch, time.Time, error) {
	var rows []timedRow
	err := db.Raw("SELECT d.*, "+s.dialect.now()+" now FROM dispatches d WHERE d.id = ?"+locking, id).Scan(&rows).Error
	if err != nil {
		return dispatch.Dispatch{}, time.Time{}, unavailable(err)
	}
	if len(rows) == 0 {
		return dispatch.Dispatch{}, time.Time{}, dispatch.ErrNotFound
	}
	now := fromMicros(rows[0].Now)
	return rows[0].Row.at(now), now, nil
}

// Dispatch returns the dispatch as it stands by the database's clock. ErrNotFound.
func (s *Store) Dispatch(ctx context.Context, id dispatch.ID) (dispatch.Dispatch, error) {
	d, _, err := s.find(s.general.WithContext(ctx), id, "")
	return d, err
}

// List returns the dispatches that q selects, newest first, and the cursor of the next page, "" after the last.
func (s *Store) List(ctx context.Context, q dispatch.Query) ([]dispatch.Dispatch, string, error) {
	db := s.general.WithContext(ctx).Where("1 = 1")
	if q.Status != "" {
		db = s.whereStatus(db, q.Status)
	}
	if q.Region != "" {
		db = db.Where("region = ?", q.Region)
	}
	if q.Text != "" {
		db = whereText(db, q.Text)
	}
	order := "created_at"
	if q.Driver != "" {
		db, order = db.Where("accepted_by = ?", q.Driver), "accepted_at"
	}
	return s.page(db, order, q.Page)
}

// whereText lets the database lower both sides: what it takes for a letter is its own affair.
func whereText(db *gorm.DB, text string) *gorm.DB {
	like := "%" + likeEscaper.Replace(text) + "%"
	columns := []string{"external_id", "site_address", "note"}
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		columns = append(columns, "id") // which is ASCII, and MySQL compares it with nothing else
	}
	conditions := make([]string, len(columns))
	args := make([]any, len(columns))
	for i, c := range columns {
		conditions[i], args[i] = "LOWER("+c+") LIKE LOWER(?) ESCAPE '!'", like
	}
	return db.Where("("+strings.Join(conditions, " OR ")+")", args...)
}

var likeEscaper = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// OpenFor returns the dispatches that the driver is suited for and whose window has not passed, those that open
// latest first, and the cursor of the next page. It does not look at duty and suspension.
func (s *Store) OpenFor(ctx context.Context, v dispatch.Driver, page dispatch.Page) ([]dispatch.Dispatch, string, error) {
	db := s.general.WithContext(ctx).
		Where("status = 'PENDING' AND expires_at > "+s.dialect.now()).
		Where("region IN ? AND vehicle_class = ?", v.Regions, v.VehicleClass).
		Where("(min_working_height_m IS NULL OR min_working_height_m <= ?)", v.WorkingHeightM)
	return s.page(db, "opens_at", page)
}

// whereStatus selects by the state as it is by the clock, which is not always the one that is written.
func (s *Store) whereStatus(db *gorm.DB, status dispatch.Status) *gorm.DB {
	now := s.dialect.now()
	switch status {
	case dispatch.Scheduled:
		return db.Where("status = 'PENDING' AND opens_at > " + now)
	case dispatch.Pending:
		return db.Where("status = 'PENDING' AND opens_at <= " + now + " AND expires_at > " + now)
	case dispatch.Expired:
		return db.Where("(status = 'EXPIRED' OR status = 'PENDING' AND opens_at <= " + now + " AND expires_at <= " + now + ")")
	}
	return db.Where("status = ?", status)
}

func (s *Store) page(db *gorm.DB, order string, page dispatch.Page) ([]dispatch.Dispatch, string, error) {
	if page.Cursor != "" {
		at, id, err := parseCursor(page.Cursor)
		if err != nil {
			return nil, "", err
		}
		db = db.Where(fmt.Sprintf("(%[1]s < ? OR %[1]s = ? AND id < ?)", order), at, at, id)
	}
	var rows []timedRow
	err := db.Table("dispatches").Select("dispatches.*, " + s.dialect.now() + " now").
		Order(order + " DESC, id DESC").Limit(page.Limit + 1).Find(&rows).Error
	if err != nil {
		return nil, "", unavailable(err)
	}
	next := ""
	if len(rows) > page.Limit {
		rows = slices.Clip(rows[:page.Limit])
		last := &rows[len(rows)-1].Row
		next = cursor(map[string]*int64{
			"created_at": &last.CreatedAt, "opens_at": &last.OpensAt, "accepted_at": last.AcceptedAt,
		}[order], last.ID)
	}
	items := make([]dispatch.Dispatch, len(rows))
	for i := range rows {
		items[i] = rows[i].Row.at(fromMicros(rows[i].Now))
	}
	return items, next, nil
}

func cursor(at *int64, id dispatch.ID) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(*at))
	return base64.RawURLEncoding.EncodeToString(append(raw, id...))
}

func parseCursor(s string) (int64, dispatch.ID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) <= 8 {
		return 0, "", dispatch.ErrBadCursor
	}
	id, err := dispatch.ParseID(string(raw[8:]))
	if err != nil {
		return 0, "", dispatch.ErrBadCursor
	}
	return int64(binary.BigEndian.Uint64(raw)), id, nil
}

// NewestClaim returns the newest claim that the driver has had on the dispatch, nil if none.
func (s *Store) NewestClaim(ctx context.Context, id dispatch.ID, driver dispatch.DriverID) (*dispatch.PastClaim, error) {
	var rows []claimRow
	err := s.general.WithContext(ctx).
		Where("dispatch_id = ? AND driver_id = ?", id, driver).Order("round DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, unavailable(err)
	}
	row := rows[0]
	return &dispatch.PastClaim{
		Claim: dispatch.Claim{
			ID: row.ID, Driver: row.DriverID, Round: row.Round, AcceptedAt: fromMicros(row.AcceptedAt),
		},
		Outcome: row.Outcome, EndedAt: fromOptionalMicros(row.EndedAt),
	}, nil
}
