package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"firsttap/dispatch"
)

// maxDetail is how many characters the column of an audit entry's detail has.
const maxDetail = 2000

// fieldChanges are an audit entry's fields that have another value now, each with both.
type fieldChanges map[string]any

// addChange takes down a field that has changed.
func addChange[T comparable](c fieldChanges, field string, from, to T) {
	if from != to {
		c[field] = map[string]any{"from": from, "to": to}
	}
}

// driverChanges returns what has become of a driver, by the API's names of the fields. The version says nothing besides.
func driverChanges(from, to dispatch.Driver) fieldChanges {
	c := fieldChanges{}
	addChange(c, "name", from.Name, to.Name)
	addChange(c, "phone", from.Phone, to.Phone)
	if !slices.Equal(from.Regions, to.Regions) {
		c["regions"] = map[string]any{"from": from.Regions, "to": to.Regions}
	}
	addChange(c, "vehicle_class", from.VehicleClass, to.VehicleClass)
	addChange(c, "working_height_m", nullableNumber(from.WorkingHeightM), nullableNumber(to.WorkingHeightM))
	addChange(c, "firebase_uid", nullableText(from.FirebaseUID), nullableText(to.FirebaseUID))
	addChange(c, "locale", nullableText(from.Locale), nullableText(to.Locale))
	addChange(c, "on_duty", from.OnDuty, to.OnDuty)
	addChange(c, "suspended_until", nullableTime(from.SuspendedUntil), nullableTime(to.SuspendedUntil))
	return c
}

// deviceChanges returns what has become of an installation; a zero device is none. Whoever has a push token can push to
// the device: it is known again by the beginning of its hash.
func deviceChanges(from, to dispatch.Device) fieldChanges {
	c := fieldChanges{}
	addChange(c, "platform", nullableText(string(from.Platform)), nullableText(string(to.Platform)))
	addChange(c, "push_token_sha256", tokenHash(from.PushToken), tokenHash(to.PushToken))
	addChange(c, "app_version", nullableText(from.AppVersion), nullableText(to.AppVersion))
	addChange(c, "locale", nullableText(from.Locale), nullableText(to.Locale))
	addChange(c, "quarantined_at", nullableTime(from.QuarantinedAt), nullableTime(to.QuarantinedAt))
	return c
}

func tokenHash(token string) any {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:6])
}

// nullableText, given and moment make nothing null.
func nullableText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func nullableNumber(n *float64) any {
	if n == nil {
		return nil
	}
	return *n
}

func nullableTime(t *time.Time) any {
	if t == nil {
		return nil
	}
	return dispatch.WireTime(*t)
}

// encodeDetail is the detail as JSON that the column has room for: long values are cut, all alike and no more than is needed.
func encodeDetail(detail map[string]any) (string, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false) // which makes six characters of one
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

// shorten returns v with texts of at most that many characters, and lists of a sixteenth as many items.
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

// auditCoalesced is audit for what a caller may do as often as they like: what one does within a minute is one entry, with the
// first change, the latest one, how many there were, and the names that the ones between had: the installations, the
// addresses, and the drivers whose push tokens were taken over. The row of the driver or key is locked.
func auditCoalesced(tx *gorm.DB, action dispatch.AuditAction, target string, detail map[string]any, now time.Time) error {
	var rows []auditRow
	err := tx.Where("target = ? AND id >= ? AND actor = ? AND action = ?", target, dispatch.FirstAuditID(now.Add(-time.Minute)),
		dispatch.CallerOf(tx.Statement.Context).Actor, action).Order("id DESC").Limit(1).Find(&rows).Error
	if err != nil {
		return unavailable(err)
	}
	if len(rows) == 0 {
		return audit(tx, action, target, detail, now)
	}
	merged := map[string]any{}
	if err := json.Unmarshal([]byte(rows[0].Detail), &merged); err != nil {
		return unavailable(err)
	}
	times, _ := merged["times"].(float64)
	last := maps.Clone(detail)
	last["at"] = nullableTime(&now)
	merged["times"], merged["last"] = max(2, int(times)+1), last
	mergeNames(merged, detail)
	said, err := encodeDetail(merged)
	if err != nil {
		return unavailable(err)
	}
	return unavailable(tx.Model(&auditRow{}).Where("id = ?", rows[0].ID).Update("detail", said).Error)
}

// maxNames is how many different names of a kind one entry keeps.
const maxNames = 16

// mergeNames notes in merged, under "also", which names detail has that the entry does not begin with.
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
