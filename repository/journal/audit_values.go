package journal

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"firsttap/dispatch"
	"firsttap/repository/database"
)

// maxDetail is the size of an audit entry's detail, in characters.
const maxDetail = 2000

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

// NullableText returns nil for no text; nullableNumber and nullableTime do the same for numbers and times.
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

// encodeDetail encodes the detail as JSON of at most maxDetail characters. If it is longer, all long values are cut to the
// same length, which is halved until the detail fits.
func encodeDetail(detail map[string]any) (string, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false) // an escaped character takes six
	err := out.Encode(detail)
	for most := 512; err == nil && utf8.RuneCount(bytes.TrimSpace(b.Bytes())) > maxDetail; most /= 2 {
		var plain any
		if err = json.Unmarshal(b.Bytes(), &plain); err == nil {
			b.Reset()
			err = out.Encode(shorten(plain, most))
		}
	}
	return string(bytes.TrimSpace(b.Bytes())), err
}

// shorten returns v with texts cut to most characters and lists cut to a sixteenth as many items.
func shorten(v any, most int) any {
	switch v := v.(type) {
	case string:
		if utf8.RuneCountInString(v) > most {
			return string([]rune(v)[:most]) + "…"
		}
	case []any:
		short := v[:min(len(v), most/16)]
		for i := range short {
			short[i] = shorten(short[i], most)
		}
		if len(short) < len(v) {
			return append(short[:len(short):len(short)], "…")
		}
		return short
	case map[string]any:
		for name := range v {
			v[name] = shorten(v[name], most)
		}
	}
	return v
}

// RecordCoalesced is audit for actions that a caller may repeat at any rate: it writes one entry for all that a caller does
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
	encoded, err := encodeDetail(merged)
	if err != nil {
		return database.Unavailable(err)
	}
	return database.Unavailable(tx.Model(&AuditRow{}).Where("id = ?", rows[0].ID).Update("detail", encoded).Error)
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
