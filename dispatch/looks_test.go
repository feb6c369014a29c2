package dispatch

import (
	"errors"
	"testing"
	"time"
)

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

func TestSuspend(t *testing.T) {
	now := time.Now()
	var v Driver
	if err := v.Suspend(now, now); !errors.Is(err, ErrSuspensionOver) || v.SuspendedUntil != nil {
		t.Errorf("until now: %v, %v", err, v.SuspendedUntil)
	}
	if err := v.Suspend(now.Add(time.Microsecond), now); err != nil || v.SuspendedUntil == nil {
		t.Errorf("until later: %v", err)
	}
	if v.Reinstate(); v.SuspendedUntil != nil {
		t.Error("still suspended")
	}
}
