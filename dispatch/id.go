package dispatch

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Identifiers are opaque to clients. They sort by the microsecond of their creation, so that a clustered index grows at its
// end and an audit trail is in order, and have 72 random bits.
type (
	// ID names a dispatch: dsp_...
	ID string
	// DriverID names a driver: drv_...
	DriverID string
	// ClaimID names a claim: clm_...
	ClaimID string
	// EventID names an event: evt_...
	EventID string
	// AttemptID names an attempt: att_...
	AttemptID string
	// DeviceID names a device: dev_...
	DeviceID string
	// NotificationID names a notification: ntf_...
	NotificationID string
)

// The prefixes of identifiers that package idempotency derives from a seed.
const (
	DispatchPrefix = "dsp_"
	DriverPrefix   = "drv_"
	KeyPrefix      = "key_"
	AuditPrefix    = "aud_"
	EventPrefix    = "evt_"
	WebhookPrefix  = "whk_"
)

const (
	claimPrefix   = "clm_"
	attemptPrefix = "att_"
	devicePrefix  = "dev_"
	notifyPrefix  = "ntf_"
)

// encoding is base32 in the "extended hex" alphabet of RFC 4648, in lower case, which keeps the order of bytes.
var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const encodedLen = 26

// NewID returns an identifier no dispatch has.
func NewID(now time.Time) ID { return ID(NewUniqueID(DispatchPrefix, now)) }

// NewDriverID returns an identifier no driver has.
func NewDriverID(now time.Time) DriverID { return DriverID(NewUniqueID(DriverPrefix, now)) }

// NewClaimID returns an identifier no claim has.
func NewClaimID(now time.Time) ClaimID { return ClaimID(NewUniqueID(claimPrefix, now)) }

// NewEventID returns an identifier no event has.
func NewEventID(now time.Time) EventID { return EventID(NewUniqueID(EventPrefix, now)) }

// NewAttemptID returns an identifier no attempt has.
func NewAttemptID(now time.Time) AttemptID { return AttemptID(NewUniqueID(attemptPrefix, now)) }

// NewDeviceID returns an identifier no device has.
func NewDeviceID(now time.Time) DeviceID { return DeviceID(NewUniqueID(devicePrefix, now)) }

// NewNotificationID returns an identifier no notification has.
func NewNotificationID(now time.Time) NotificationID {
	return NotificationID(NewUniqueID(notifyPrefix, now))
}

// MinID returns the smallest identifier of a dispatch made at that time.
func MinID(at time.Time) ID { return ID(smallest(DispatchPrefix, at)) }

// MinEventID returns the smallest identifier of an event made at that time.
func MinEventID(at time.Time) EventID { return EventID(smallest(EventPrefix, at)) }

// NewUniqueID returns prefix followed by 56 bits of time in microseconds and 72 random bits.
func NewUniqueID(prefix string, now time.Time) string {
	raw := withTime(now)
	rand.Read(raw[timeLen:]) // never fails: crypto/rand ends the process instead
	return prefix + encoding.EncodeToString(raw[:])
}

// DeriveID returns the nth identifier with prefix from seed, which is an identifier itself. The result depends on the arguments
// only, and has the seed's time. It reports false for a malformed seed.
func DeriveID(seed, prefix string, n int) (string, bool) {
	_, text, _ := strings.Cut(seed, "_")
	raw, err := encoding.DecodeString(text)
	if err != nil || len(raw) != timeLen+randomLen {
		return "", false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", seed, prefix, n))
	copy(raw[timeLen:], sum[:])
	return prefix + encoding.EncodeToString(raw), true
}

func smallest(prefix string, at time.Time) string {
	raw := withTime(at)
	return prefix + encoding.EncodeToString(raw[:])
}

// MadeAt returns the time in the identifier. It reports false for a malformed one.
func (id NotificationID) MadeAt() (time.Time, bool) { return madeAt(string(id), notifyPrefix) }

// MadeAt returns the time in the identifier. It reports false for a malformed one.
func (id AttemptID) MadeAt() (time.Time, bool) { return madeAt(string(id), attemptPrefix) }

func madeAt(id, prefix string) (time.Time, bool) {
	if !wellFormed(id, prefix) {
		return time.Time{}, false
	}
	raw, err := encoding.DecodeString(id[len(prefix):])
	if err != nil {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(raw) >> 8)).UTC(), true
}

// The bytes of an identifier.
const (
	timeLen   = 7
	randomLen = 9
)

func withTime(at time.Time) (raw [timeLen + randomLen]byte) {
	binary.BigEndian.PutUint64(raw[:], uint64(at.UnixMicro())<<8)
	return raw
}

// ParseID returns s as a dispatch's identifier, or ErrNotFound if it is malformed.
func ParseID(s string) (ID, error) {
	if !wellFormed(s, DispatchPrefix) {
		return "", ErrNotFound
	}
	return ID(s), nil
}

// ParseDriverID returns s as a driver's identifier, or ErrDriverNotFound.
func ParseDriverID(s string) (DriverID, error) {
	if !wellFormed(s, DriverPrefix) {
		return "", ErrDriverNotFound
	}
	return DriverID(s), nil
}

// ParseAttemptID returns s as an attempt's identifier, or ErrBadCursor: only cursors contain one.
func ParseAttemptID(s string) (AttemptID, error) {
	if !wellFormed(s, attemptPrefix) {
		return "", ErrBadCursor
	}
	return AttemptID(s), nil
}

// ParseNotificationID returns s as a notification's identifier, or ErrNotificationNotFound.
func ParseNotificationID(s string) (NotificationID, error) {
	if !wellFormed(s, notifyPrefix) {
		return "", ErrNotificationNotFound
	}
	return NotificationID(s), nil
}

// ParseEventID returns s as an event's identifier, or ErrBadCursor: only cursors contain one.
func ParseEventID(s string) (EventID, error) {
	if !wellFormed(s, EventPrefix) {
		return "", ErrBadCursor
	}
	return EventID(s), nil
}

func wellFormed(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != encodedLen {
		return false
	}
	for i := range len(rest) {
		if c := rest[i]; (c < '0' || c > '9') && (c < 'a' || c > 'v') {
			return false
		}
	}
	return true
}

// LooksLikeID reports whether s has the form of any identifier of the service.
func LooksLikeID(s string) bool {
	prefix, rest, ok := strings.Cut(s, "_")
	return ok && len(prefix) == 3 && rest != "" && len(s) <= 40 &&
		strings.Trim(prefix+rest, "0123456789abcdefghijklmnopqrstuvwxyz_") == ""
}
