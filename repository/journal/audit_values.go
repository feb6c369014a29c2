package journal

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// Changes holds the changed fields of an audit entry, each with the value before and after.
type Changes map[string]any

// AddChange adds the field if its value has changed.
func AddChange[T comparable](c Changes, field string, from, to T) {
	if from != to {
		c[field] = map[string]any{"from": from, "to": to}
	}
}

// AddPersonal adds the field, without its values, if its value has changed: the audit names no person, so an erasure has nothing to look
// for there.
func AddPersonal(c Changes, field, from, to string) {
	if from != to {
		c[field] = "changed"
	}
}

// NullableText returns nil for no text; NullableNumber and NullableTime do the same for numbers and times.
func NullableText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// NullableNumber returns nil for no number.
func NullableNumber(n *float64) any {
	if n == nil {
		return nil
	}
	return *n
}

// NullableTime returns nil for no time.
func NullableTime(t *time.Time) any {
	if t == nil {
		return nil
	}
	return dispatch.WireTime(*t)
}

// RecordCoalesced is Record for actions that a caller may repeat at any rate: it writes one entry for all that a caller does
// within a minute, with the first change, the latest change, the number of changes, and the names that occurred between
// (devices, addresses, previous owners of a push token). The caller holds the lock of the driver's or key's row.
func RecordCoalesced(tx database.Tx, action dispatch.AuditAction, target string, detail map[string]any, now time.Time) error {
	var rows []AuditRow
	err := tx.Where("target = ? AND id >= ? AND actor = ? AND action = ?", target, dispatch.MinAuditID(now.Add(-time.Minute)),
		dispatch.CallerFrom(tx.Statement.Context).Actor, action).Order("id DESC").Limit(1).Find(&rows).Error
	if err != nil {
		return database.Unavailable(err)
	}
	if len(rows) == 0 {
		return Record(tx, action, target, detail, now)
	}
	merged := map[string]any{}
	if err := json.Unmarshal([]byte(rows[0].Detail), &merged); err != nil {
		return database.Unavailable(err)
	}
	times, _ := merged["times"].(float64)
	last := maps.Clone(detail)
	last["at"] = NullableTime(&now)
	merged["times"], merged["last"] = max(2, int(times)+1), last
	mergeNames(merged, detail)
	encoded, err := json.Marshal(merged)
	if err != nil {
		return database.Unavailable(err)
	}
	return database.Unavailable(tx.Model(&rows[0]).Update("detail", string(encoded)).Error)
}

// maxNames bounds the different names that one entry keeps of each field.
const maxNames = 16

// mergeNames adds to merged, under "also", the names in detail that differ from the entry's first ones.
func mergeNames(merged, detail map[string]any) {
	also, _ := merged["also"].(map[string]any)
	if also == nil {
		also = map[string]any{}
	}
	for field, v := range detail {
		name, plain := v.(string)
		known, _ := also[field].([]any)
		if plain && name != merged[field] && !slices.Contains(known, v) && len(known) < maxNames {
			also[field] = append(known, name)
		}
	}
	if len(also) > 0 {
		merged["also"] = also
	}
}
