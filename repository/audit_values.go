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

// maxDetail is the size of an audit entry's detail, in characters.
const maxDetail = 2000

// fieldChanges holds the changed fields of an audit entry, each with the value before and after.
type fieldChanges map[string]any

// addChange adds the field if its value has changed.
func addChange[T comparable](c fieldChanges, field string, from, to T) {
	if from != to {
		c[field] = map[string]any{"from": from, "to": to}
	}
}

// addPersonal adds the field, without its values, if its value has changed: the audit names no person, so an erasure has nothing to look
// for there.
func addPersonal(c fieldChanges, field, from, to string) {
	if from != to {
		c[field] = "changed"
	}
}

// driverChanges returns the driver's changed fields by their names in the API, without the version.
func driverChanges(from, to dispatch.Driver) fieldChanges {
	c := fieldChanges{}
	addPersonal(c, "name", from.Name, to.Name)
	addPersonal(c, "phone", from.Phone, to.Phone)
	if !slices.Equal(from.Regions, to.Regions) {
		c["regions"] = map[string]any{"from": from.Regions, "to": to.Regions}
	}
	addChange(c, "vehicle_class", from.VehicleClass, to.VehicleClass)
	addChange(c, "working_height_m", nullableNumber(from.WorkingHeightM), nullableNumber(to.WorkingHeightM))
	addPersonal(c, "firebase_uid", from.FirebaseUID, to.FirebaseUID)
	addChange(c, "locale", nullableText(from.Locale), nullableText(to.Locale))
	addChange(c, "on_duty", from.OnDuty, to.OnDuty)
	addChange(c, "suspended_until", nullableTime(from.SuspendedUntil), nullableTime(to.SuspendedUntil))
	return c
}

// deviceChanges returns the installation's changed fields; a zero device stands for none.
func deviceChanges(from, to dispatch.Device) fieldChanges {
	c := fieldChanges{}
	addChange(c, "platform", nullableText(string(from.Platform)), nullableText(string(to.Platform)))
	addPersonal(c, "push_token", from.PushToken, to.PushToken)
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

// nullableText returns nil for no text; nullableNumber and nullableTime do the same for numbers and times.
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

// auditCoalesced is audit for actions that a caller may repeat at any rate: it writes one entry for all that a caller does
// within a minute, with the first change, the latest change, the number of changes, and the names that occurred between
// (devices, addresses, previous owners of a push token). The caller holds the lock of the driver's or key's row.
func auditCoalesced(tx *gorm.DB, action dispatch.AuditAction, target string, detail map[string]any, now time.Time) error {
	var rows []auditRow
	err := tx.Where("target = ? AND id >= ? AND actor = ? AND action = ?", target, dispatch.MinAuditID(now.Add(-time.Minute)),
		dispatch.CallerFrom(tx.Statement.Context).Actor, action).Order("id DESC").Limit(1).Find(&rows).Error
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
	encoded, err := encodeDetail(merged)
	if err != nil {
		return unavailable(err)
	}
	return unavailable(tx.Model(&auditRow{}).Where("id = ?", rows[0].ID).Update("detail", encoded).Error)
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
