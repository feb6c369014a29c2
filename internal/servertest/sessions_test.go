package servertest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"firsttap/internal/testkit"
)

// Sessions names the statement that each other session on the database executes, also beside a statement with bytes that are no text.
func TestSessions(t *testing.T) {
	OnEach(t, EveryServer(), func(t *testing.T, kind string) {
		url := EmptyURL(t, kind)
		db := openURL(t, url)
		sleeping, elsewhere := openURL(t, url), openURL(t, EmptyURL(t, kind))
		testkit.Run(t, func(ctx context.Context) {
			_, _ = sleeping.ExecContext(ctx, "DO SLEEP(600) /* here \xff */")
		})
		mustScan(t, elsewhere, "SELECT 1", "1")
		testkit.Eventually(t, "the statement is executed", func() bool {
			return slices.ContainsFunc(Sessions(t, db), func(s Session) bool { return strings.HasPrefix(s.Statement, "DO SLEEP(600) /* here ") })
		})
		if all := Sessions(t, db); len(all) != 1 || all[0].ID == "" {
			t.Errorf("%v", all)
		}
	})
}
