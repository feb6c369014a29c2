package notify

import (
	"context"
	"errors"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/internal/testkit"
)

// counted answers a relay that counts topics, and notes after which devices it asks.
type counted struct {
	Topics
	most  int
	last  dispatch.DeviceID
	fails bool
	asked []dispatch.DeviceID
}

func (c *counted) CountTopics(_ context.Context, after dispatch.DeviceID, _ int) (int, dispatch.DeviceID, error) {
	c.asked = append(c.asked, after)
	if c.fails {
		return 0, "", errors.New("the database is away")
	}
	return c.most, c.last, nil
}

// The largest number of topics is that of the last round over all devices, or of the present one once that has found more. It falls when a
// round has found less, and stays while nothing can be read. Without topics it is asked for once a minute.
func TestTopicCount(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var c topicCount
		db := &counted{}
		for _, step := range []struct {
			most  int
			last  dispatch.DeviceID
			fails bool
			after time.Duration // since the step before
			asks  bool
			want  int
		}{
			{0, "", false, 0, true, 0},
			{3, "b", false, time.Minute - time.Millisecond, false, 0},
			{3, "b", false, time.Millisecond, true, 3},
			{0, "", true, 10 * time.Second, true, 3},
			{5, "d", false, 10 * time.Second, true, 5},
			{2, "", false, 10 * time.Second, true, 5},
			{1, "b", false, 10 * time.Second, true, 5},
			{7, "d", false, 10 * time.Second, true, 7},
			{0, "", false, 10 * time.Second, true, 7},
			{1, "b", false, 10 * time.Second, true, 7},
			{0, "", false, 10 * time.Second, true, 1},
			{0, "", false, 10 * time.Second, true, 0},
			{0, "", false, 10 * time.Second, false, 0},
		} {
			time.Sleep(step.after) //nolint:forbidigo // in a bubble of testing/synctest
			before := len(db.asked)
			db.most, db.last, db.fails = step.most, step.last, step.fails
			if got := c.next(t.Context(), db); got != step.want || (len(db.asked) > before) != step.asks {
				t.Errorf("%+v: %d, asked %v", step, got, db.asked)
			}
		}
		testkit.Equal(t, "the devices after which it asked", []dispatch.DeviceID{"", "", "b", "b", "d", "", "b", "d", "", "b", ""}, db.asked)
	})
}
