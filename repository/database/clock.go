package database

import "time"

// Clock returns the database's time. ErrUnavailable.
func Clock(db Tx) (time.Time, error) {
	var us int64
	if err := db.Raw("SELECT {now}").Scan(&us).Error; err != nil {
		return time.Time{}, Unavailable(err)
	}
	return Time(us), nil
}

// Micros returns a time as columns have it, in microseconds since 1970.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// OptionalMicros is Micros, and nil for nil.
func OptionalMicros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// Time returns the time of a column.
func Time(us int64) time.Time { return time.UnixMicro(us).UTC() }

// OptionalTime is Time, and nil for NULL.
func OptionalTime(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := Time(*us)
	return &t
}

// LocalTime converts a time by the database's clock into one by this process's clock; now is the database's.
func LocalTime(at *int64, now int64) *time.Time {
	if at == nil {
		return nil
	}
	own := time.Now().Add(-time.Duration(now-*at) * time.Microsecond)
	return &own
}
