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

// Time returns the time of a column.
func Time(us int64) time.Time { return time.UnixMicro(us).UTC() }

// OptionalMicros is Micros, and nil for nil.
func OptionalMicros(t *time.Time) *int64 { return optional(t, Micros) }

// OptionalTime is Time, and nil for NULL.
func OptionalTime(us *int64) *time.Time { return optional(us, Time) }

// LocalTime converts a time by the database's clock into one by this process's clock; now is the database's.
func LocalTime(at *int64, now int64) *time.Time {
	return optional(at, func(at int64) time.Time { return time.Now().Add(time.Duration(at-now) * time.Microsecond) })
}

func optional[A, B any](value *A, convert func(A) B) *B {
	if value == nil {
		return nil
	}
	converted := convert(*value)
	return &converted
}
