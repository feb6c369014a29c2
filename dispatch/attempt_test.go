package dispatch_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	. "firsttap/dispatch"
)

func TestResultOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want AttemptResult
		kept bool
	}{
		{nil, AttemptWon, true},
		{&TakenError{Final: true}, "ALREADY_TAKEN", true},
		{&TakenError{}, "ALREADY_TAKEN", true},
		{fmt.Errorf("wrapped: %w", ErrOfferStale), "OFFER_STALE", true},
		{ErrDriverBusy, "DRIVER_BUSY", true},
		{&NotOpenYetError{}, "NOT_OPEN_YET", true},
		{&NotEligibleError{}, "NOT_ELIGIBLE", true},
		{ErrExpired, "DISPATCH_EXPIRED", true},
		{ErrCanceled, "DISPATCH_CANCELED", true},
		{ErrUnavailable, AttemptUnavailable, true},
		{ErrUnknown, AttemptUnavailable, true},
		{errors.New("anything else"), AttemptUnavailable, true},
		{ErrNotFound, "", false},
		{ErrDriverNotFound, "", false},
	} {
		if got, kept := ResultOf(c.err); got != c.want || kept != c.kept {
			t.Errorf("%v: %q, %v", c.err, got, kept)
		}
	}
}

func TestRanks(t *testing.T) {
	tap := func(v DriverID, result AttemptResult, ms int) FirstTap {
		return FirstTap{v, result, noon.Add(time.Duration(ms) * time.Millisecond)}
	}
	taps := []FirstTap{
		tap("a", "ALREADY_TAKEN", 3), tap("b", AttemptWon, 5), tap("c", "ALREADY_TAKEN", 9), tap("c", "DRIVER_BUSY", 2),
		tap("d", AttemptEarly, -9), tap("e", AttemptStale, 1), tap("f", "ALREADY_TAKEN", 3), tap("g", AttemptEarly, -9), tap("g", "ALREADY_TAKEN", 99),
	}
	for _, c := range []struct {
		winner DriverID
		want   map[DriverID]int
	}{
		{"b", map[DriverID]int{"b": 1, "c": 2, "a": 3, "f": 3, "g": 5}},
		{"", map[DriverID]int{"c": 1, "a": 2, "f": 2, "b": 4, "g": 5}},
		{"z", map[DriverID]int{"z": 1, "c": 2, "a": 3, "f": 3, "b": 5, "g": 6}}, // assigned
	} {
		if got := Ranks(taps, c.winner); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v, want %v", c.winner, got, c.want)
		}
	}
}

func TestReactions(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		tap  int
		sent *time.Time
		want *time.Duration
	}{
		{5, nil, new(5 * time.Millisecond)},
		{5, new(at(-9)), new(5 * time.Millisecond)}, // pushed before the opening
		{5, new(at(2)), new(3 * time.Millisecond)},
		{5, new(at(6)), nil}, // from the list, before the push
		{0, nil, new(time.Duration(0))},
		{-1, nil, nil},
	} {
		if got := Reaction(at(c.tap), noon, c.sent); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	s := TapStatistics{}
	if s.Median() != nil || s.CountFaster(time.Hour) != 0 {
		t.Error("no taps have a median")
	}
	s.Reactions = []time.Duration{1, 2, 2, 5}
	if *s.Median() != 2 || s.CountFaster(2) != 1 || s.CountFaster(3) != 3 || s.CountFaster(9) != 4 {
		t.Errorf("%v, %d, %d, %d", s.Median(), s.CountFaster(2), s.CountFaster(3), s.CountFaster(9))
	}
	s.Reactions = []time.Duration{1, 3, 7}
	if *s.Median() != 3 {
		t.Errorf("%v", s.Median())
	}
}
