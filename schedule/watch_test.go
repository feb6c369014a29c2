package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A slot is counted as skipped once, and not by the instance that runs it before or afterwards.
func TestSkips(t *testing.T) {
	slot := func(n int) time.Time { return time.Unix(int64(n), 0) }
	var k skips
	add := func(job string, slot time.Time) { k.add(job, slot) }
	for _, step := range []struct {
		do   func(job string, slot time.Time)
		job  string
		slot int
		want string
	}{
		{add, "a", 1, "a1"},
		{add, "a", 1, "a1"},
		{add, "b", 1, "a1 b1"},
		{k.ran, "a", 2, "a1 b1"},
		{add, "a", 2, "a1 b1"},
		{add, "a", 3, "a1 b1 a3"},
		{add, "a", 2, "a1 b1 a3"}, // an earlier slot
		{k.ran, "a", 3, "a1 b1"},  // it runs the slot after all
		{k.ran, "b", 1, "a1"},
		{add, "a", 4, "a1 a4"},
	} {
		step.do(step.job, slot(step.slot))
		var got []string
		for _, one := range k.todo {
			got = append(got, fmt.Sprint(one.job, one.slot.Unix()))
		}
		if all := strings.Join(got, " "); all != step.want {
			t.Errorf("after %s%d it is %s, want %s", step.job, step.slot, all, step.want)
		}
	}
	for i := range 2 * maxSkips {
		k.add("many", slot(i+1))
	}
	if len(k.todo) != maxSkips {
		t.Errorf("%d are to be written", len(k.todo))
	}
}
