package redisclient

import (
	"context"
	"slices"
	"strings"

	"firsttap/internal/doctor"
)

// scanPage and scanPages bound the search for other installations: a Redis may hold millions of keys.
const scanPage, scanPages = 1000, 100

// others looks for the live streams of other installations.
func (e *examination) others(ctx context.Context) doctor.Finding {
	var found []string
	for _, n := range e.nodes {
		cursor := uint64(0)
		for range scanPages {
			keys, next, err := n.client.ScanType(ctx, cursor, "*:stream", scanPage, "stream").Result()
			if err != nil {
				return doctor.Doubt(n.addr+": "+err.Error(), "allow the user SCAN, so that other installations are seen")
			}
			for _, key := range keys {
				if name := strings.TrimSuffix(key, ":stream"); name != e.namespace && !slices.Contains(found, name) {
					found = append(found, name)
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	if len(found) == 0 {
		return doctor.Good("no other installation has keys there")
	}
	slices.Sort(found)
	return doctor.Doubt("other installations have keys there: "+strings.Join(found, ", "),
		"give each installation a Redis of its own, or a FIRSTTAP_NAMESPACE of its own, as these have")
}
