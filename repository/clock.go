package repository

import (
	"time"

	"gorm.io/gorm"
)

// clock returns the database's time.
func (s *Store) clock(db *gorm.DB) (time.Time, error) {
	var us int64
	if err := db.Raw("SELECT {now}").Scan(&us).Error; err != nil {
		return time.Time{}, unavailable(err)
	}
	return fromMicros(us), nil
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func optionalMicros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func fromOptionalMicros(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := fromMicros(*us)
	return &t
}

// toLocalTime converts a time by the database's clock into one by this process's clock; now is the database's.
func toLocalTime(at *int64, now int64) *time.Time {
	if at == nil {
		return nil
	}
	own := time.Now().Add(-time.Duration(now-*at) * time.Microsecond)
	return &own
}
