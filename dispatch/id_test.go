package dispatch_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "firsttap/dispatch"
)

func TestIdentifiersHaveAPrefixAndAreUnique(t *testing.T) {
	makers := map[string]func() string{
		"dsp_": func() string { return string(NewID(noon)) },
		"drv_": func() string { return string(NewDriverID(noon)) },
		"clm_": func() string { return string(NewClaimID(noon)) },
		"evt_": func() string { return string(NewEventID(noon)) },
		"ntf_": func() string { return string(NewNotificationID(noon)) },
		"dev_": func() string { return string(NewDeviceID(noon)) },
	}
	for prefix, make := range makers {
		form := regexp.MustCompile("^" + prefix + "[0-9a-v]{26}$")
		seen := map[string]bool{}
		for range 10_000 { // all of one microsecond
			id := make()
			if !form.MatchString(id) {
				t.Fatalf("%s is not of the form %s", id, form)
			}
			if seen[id] {
				t.Fatalf("%s twice", id)
			}
			seen[id] = true
		}
	}
}

func TestIdentifiersSortByTime(t *testing.T) {
	times := []time.Time{
		time.UnixMicro(0), time.UnixMicro(1), time.UnixMicro(255), time.UnixMicro(256), time.UnixMicro(1<<32 - 1),
		time.UnixMicro(1 << 32), noon, noon.Add(time.Microsecond), noon.Add(time.Second), noon.AddDate(100, 0, 0),
		noon.AddDate(2000, 0, 0),
	}
	for range 100 { // whatever the random bits
		ids := make([]string, len(times))
		for i, at := range times {
			ids[i] = string(NewID(at))
		}
		if !slices.IsSorted(ids) {
			t.Fatalf("not sorted: %v", ids)
		}
	}
}

func TestTheFirstIdentifierOfATime(t *testing.T) {
	for _, at := range []time.Time{time.UnixMicro(0), time.UnixMicro(255), time.UnixMicro(1 << 32), noon} {
		id := MinID(at)
		for range 100 { // whatever the random bits
			if before, then := NewID(at.Add(-time.Microsecond)), NewID(at); at.UnixMicro() > 0 && before >= id || then < id {
				t.Errorf("%v: %s is not between %s and %s", at, id, before, then)
			}
		}
		if got, err := ParseID(string(id)); got != id || err != nil {
			t.Errorf("%s is read as %s, %v", id, got, err)
		}
	}
}

var malformed = []string{
	"", "dsp_", "dsp", "_", strings.Repeat("0", 30), strings.Repeat("0", 26),
	"dsp_" + strings.Repeat("0", 25), "dsp_" + strings.Repeat("0", 27), "dsp_" + strings.Repeat("0", 1<<20),
	"DSP_" + strings.Repeat("0", 26), "dsp_" + strings.Repeat("A", 26), "dsp_" + strings.Repeat("w", 26),
	"dsp_" + strings.Repeat("0", 25) + " ", " dsp_" + strings.Repeat("0", 26), "dsp_" + strings.Repeat("0", 26) + "\n",
	"dsp_" + strings.Repeat("0", 25) + "\x00", "dsp_" + strings.Repeat("0", 25) + "}", "dsp_" + strings.Repeat("0", 25) + ":",
	"dsp_" + strings.Repeat("é", 13), "dsp_" + strings.Repeat("\xff", 26), "dsp-" + strings.Repeat("0", 26),
	"dsp_dsp_" + strings.Repeat("0", 22),
	"' OR 1=1 --", "../../../etc/passwd", "%00", "null",
}

func TestIdentifiersAreReadBack(t *testing.T) {
	readsBack(t, NewID, ParseID, ErrNotFound)
	readsBack(t, NewDriverID, ParseDriverID, ErrDriverNotFound)
	readsBack(t, NewEventID, ParseEventID, ErrBadCursor)
	readsBack(t, NewAttemptID, ParseAttemptID, ErrBadCursor)
	readsBack(t, NewNotificationID, ParseNotificationID, ErrNotificationNotFound)
}

// readsBack fails the test unless parse takes what make has made, and refuses everything else, also other kinds of identifiers.
func readsBack[ID ~string](t *testing.T, make func(time.Time) ID, parse func(string) (ID, error), refused error) {
	t.Helper()
	for range 1000 {
		id := make(time.Now())
		if got, err := parse(string(id)); got != id || err != nil {
			t.Errorf("%s is read as %s, %v", id, got, err)
		}
	}
	prefix := string(make(noon))[:4]
	mustRefuse := func(s string) {
		if id, err := parse(s); !errors.Is(err, refused) || id != "" {
			t.Errorf("%.40q is read as %s, %v", s, id, err)
		}
	}
	for _, s := range malformed {
		mustRefuse(strings.ReplaceAll(s, "dsp_", prefix))
	}
	for _, other := range []string{"dsp_", "drv_", "clm_", "evt_", "att_", "dev_", "ntf_"} {
		if other != prefix {
			mustRefuse(other + strings.Repeat("0", 26))
		}
	}
}

// FuzzIdentifiers: a parsed identifier is unchanged, and safe in a URL, a log line, SQL and a Redis key.
func FuzzIdentifiers(f *testing.F) {
	for _, s := range malformed {
		f.Add(s[:min(len(s), 100)])
	}
	f.Add(string(NewID(noon)))
	f.Add(string(NewDriverID(noon)))
	form := regexp.MustCompile(`\A(dsp|drv)_[0-9a-v]{26}\z`)
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		driver, driverErr := ParseDriverID(s)
		if err == nil && (string(id) != s || !form.MatchString(s) || driverErr == nil) {
			t.Errorf("%q was taken for dispatch %q", s, id)
		}
		if driverErr == nil && (string(driver) != s || !form.MatchString(s) || err == nil) {
			t.Errorf("%q was taken for driver %q", s, driver)
		}
		if err != nil && !errors.Is(err, ErrNotFound) || driverErr != nil && !errors.Is(driverErr, ErrDriverNotFound) {
			t.Errorf("%q: %v, %v", s, err, driverErr)
		}
	})
}

func TestWhenANotificationWasMade(t *testing.T) {
	if at, ok := NewNotificationID(noon).MadeAt(); !ok || !at.Equal(noon) {
		t.Errorf("%v, %v", at, ok)
	}
	for _, id := range []NotificationID{"", "ntf_", NotificationID(NewEventID(noon))} {
		if _, ok := id.MadeAt(); ok {
			t.Errorf("%q was made", id)
		}
	}
}

func TestLooksLikeID(t *testing.T) {
	for s, want := range map[string]bool{
		"key_first": true, "dsp_0": true, string(NewID(time.Now())): true,
		"": false, "key": false, "key_": false, "_first": false, "keys_1": false, "key_Ä": false, "key_\x00": false, "key_a b": false,
		"key_00000000000000000000000000000000000000": false, "KEY_1": false,
	} {
		if LooksLikeID(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
