package stream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/dispatch"
)

// The kinds of entries. An instance ignores other kinds, as a newer version may have added them.
const (
	kindEvent  = "event"
	kindDriver = "driver" // a change of the driver's profile
	kindWake   = "wake"   // pushes are due in the outbox
	kindGap    = "gap"    // entries were lost: every client gets a resync
	kindMark   = "mark"   // has only an id, to read on from
)

// entry is one message from an instance to all.
type entry struct {
	n         uint64 // counts this instance's entries from 1; 0 for a wake or a mark, which are not sent again
	kind      string
	event     *announcement
	driver    *profile
	delivered bool // to the streams of this instance
}

// profile is the part of a driver that decides which offers the driver sees. It holds nothing personal.
type profile struct {
	ID             dispatch.DriverID `json:"id"`
	Version        int               `json:"version"`
	OnDuty         bool              `json:"on_duty"`
	SuspendedUntil *time.Time        `json:"suspended_until,omitempty"`
	Regions        []string          `json:"regions"`
	VehicleClass   string            `json:"class"`
	WorkingHeightM *float64          `json:"height,omitempty"`
}

func profileOf(v dispatch.Driver) *profile {
	return &profile{v.ID, v.Version, v.OnDuty, v.SuspendedUntil, v.Regions, v.VehicleClass, v.WorkingHeightM}
}

func (p *profile) driver() dispatch.Driver {
	return dispatch.Driver{
		ID: p.ID, Version: p.Version, OnDuty: p.OnDuty, SuspendedUntil: p.SuspendedUntil, Regions: p.Regions,
		VehicleClass: p.VehicleClass, WorkingHeightM: p.WorkingHeightM,
	}
}

const (
	// busLength is the approximate number of entries that Redis keeps at most, however many come within the retention. It is more than a
	// ring holds.
	busLength = 10_000
	// busWait is how long a read waits for entries, and so how long Run may take to return.
	busWait = 500 * time.Millisecond
	// busPage is how many entries one backward read returns.
	busPage = 1000
)

// bus is one Redis stream that every instance appends to and reads, so that all see the same entries in the same order
// with the same ids.
type bus struct {
	client  redis.UniversalClient
	key     string
	origin  string // this instance, in its entries
	timeout time.Duration
}

// received is an entry that was read from Redis.
type received struct {
	id   string
	own  bool
	kind string
	n    uint64
	body string
}

// append appends entries in order. After an error, some of them may have been appended.
func (b *bus) append(ctx context.Context, entries []*entry) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	_, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range entries {
			body, err := e.body()
			if err != nil {
				return err
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: b.key, MaxLen: busLength, Approx: true, Values: []any{
				"kind", e.kind, "from", b.origin, "n", strconv.FormatUint(e.n, 10), "body", body,
			}})
		}
		return nil
	})
	return err
}

// markAndTrim appends a mark, and removes the entries that are older than the entry last by more than retention. That is time by Redis's
// clock: an instance whose own clock is wrong removes nothing that others need.
func (b *bus) markAndTrim(ctx context.Context, last string, retention time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	ms, _, _ := splitID(last)
	oldest := ms - min(ms, uint64(retention.Milliseconds()))
	return b.client.XAdd(ctx, &redis.XAddArgs{
		Stream: b.key, MinID: strconv.FormatUint(oldest, 10), Values: []any{"kind", kindMark, "from", b.origin},
	}).Err()
}

func (e *entry) body() ([]byte, error) {
	switch {
	case e.event != nil:
		return json.Marshal(e.event)
	case e.driver != nil:
		return json.Marshal(e.driver)
	}
	return nil, nil
}

// newest returns up to count of the newest entries, the oldest first, and the id of the last. In an empty stream it appends
// a mark, so there is always one.
func (b *bus) newest(ctx context.Context, count int) ([]received, string, error) {
	for {
		found, err := b.readBack(ctx, count)
		if err != nil {
			return nil, "", err
		}
		if len(found) > 0 {
			return found, found[len(found)-1].id, nil
		}
		if err := b.append(ctx, []*entry{{kind: kindMark}}); err != nil {
			return nil, "", err
		}
	}
}

// readBack reads backwards from the end, in pages small enough for a client with a short timeout.
func (b *bus) readBack(ctx context.Context, count int) ([]received, error) {
	var entries []received
	for end := "+"; len(entries) < count; end = "(" + entries[len(entries)-1].id {
		page, err := b.page(ctx, end, min(busPage, count-len(entries)))
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			entries = append(entries, b.parse(m))
		}
	}
	slices.Reverse(entries)
	return entries, nil
}

func (b *bus) page(ctx context.Context, end string, count int) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.client.XRevRangeN(ctx, b.key, end, "-", int64(count)).Result()
}

// readAfter returns up to count entries after id. It waits for busWait if there are none.
func (b *bus) readAfter(ctx context.Context, id string, count int) ([]received, error) {
	ctx, cancel := context.WithTimeout(ctx, busWait+b.timeout)
	defer cancel()
	found, err := b.client.XRead(ctx, &redis.XReadArgs{Streams: []string{b.key, id}, Count: int64(count), Block: busWait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(found) == 0 {
		return nil, err
	}
	entries := make([]received, len(found[0].Messages))
	for i, m := range found[0].Messages {
		entries[i] = b.parse(m)
	}
	return entries, nil
}

// takesEntries returns nil if Redis would append an entry. It appends none: the id is lower than every other.
func (b *bus) takesEntries(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	err := b.client.XAdd(ctx, &redis.XAddArgs{Stream: b.key, ID: "0-0", Values: []any{"kind", kindMark}}).Err()
	if err != nil && strings.Contains(err.Error(), "must be greater than 0-0") {
		return nil
	}
	return err
}

// contains reports whether Redis still has the entry.
func (b *bus) contains(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	found, err := b.client.XRangeN(ctx, b.key, id, id, 1).Result()
	return len(found) > 0, err
}

func (b *bus) parse(m redis.XMessage) received {
	field := func(name string) string { s, _ := m.Values[name].(string); return s }
	h := received{id: m.ID, own: field("from") == b.origin, kind: field("kind"), body: field("body")}
	h.n, _ = strconv.ParseUint(field("n"), 10, 64) // 0 if it is not a number
	return h
}

// before reports whether entry id a is older than b. It is false unless both have the form of Redis's ids:
// milliseconds-number.
func before(a, b string) bool {
	ams, an, aok := splitID(a)
	bms, bn, bok := splitID(b)
	return aok && bok && (ams < bms || ams == bms && an < bn)
}

func splitID(id string) (ms, n uint64, ok bool) {
	first, second, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseUint(first, 10, 64)
	n, err2 := strconv.ParseUint(second, 10, 64)
	return ms, n, err == nil && err2 == nil
}
