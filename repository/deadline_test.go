package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"firsttap/servertest"
	"firsttap/testkit"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
)

// slow is a statement that takes a minute, and one that is marked.
func slow(mark string) string {
	return "SELECT /* " + mark + " */ SUM(SLEEP(30)) FROM (SELECT 1 UNION ALL SELECT 2) x"
}

// works is whether the server works on it.
func (db *database) works(t *testing.T, mark string) bool {
	t.Helper()
	return slices.ContainsFunc(servertest.Sessions(t, db.raw), func(s servertest.Session) bool { return strings.Contains(s.Statement, "/* "+mark+" */") })
}

// A read that takes too long ends on the server, also after its client is gone.
func TestReadsEndOnTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		t.Parallel()
		ctx, giveUp := context.WithCancel(t.Context())
		given := make(chan struct{})
		go func() {
			defer close(given)
			if err := db.general.WithContext(ctx).Exec(slow("given-up")).Error; err == nil {
				t.Error("it was given up")
			}
		}()
		testkit.Retry(t, func() error {
			if !db.works(t, "given-up") {
				return errors.New("it has not begun")
			}
			return nil
		})
		giveUp()
		<-given

		const ended, endedMariaDB = 3024, 1969
		var refused *driver.MySQLError
		err := db.general.WithContext(t.Context()).Exec(slow("waited-for")).Error
		if !errors.As(err, &refused) || refused.Number != ended && refused.Number != endedMariaDB {
			t.Errorf("the waiting call got %v", err)
		}
		for _, mark := range []string{"given-up", "waited-for"} {
			testkit.Retry(t, func() error {
				if db.works(t, mark) {
					return fmt.Errorf("the server still runs the statement that was %s", mark)
				}
				return nil
			})
		}
	})
}

// On a MariaDB the deadline would end writes and their COMMIT too: they have none.
func TestWritesHaveNoDeadlineOnTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, db *database) {
		limit := "@@SESSION.max_execution_time / 1000"
		if err := db.raw.QueryRow("SELECT @@max_statement_time").Scan(new(float64)); err == nil {
			limit = "@@SESSION.max_statement_time"
		}
		for name, pool := range map[string]*gorm.DB{"claims": db.claims, "general": db.general, "writes": db.writes, "relay": db.relay} {
			want := 0.0
			if name == "general" {
				want = serverReadTimeout.Seconds()
			}
			var got float64
			if err := pool.Raw("SELECT " + limit).Row().Scan(&got); err != nil || got != want {
				t.Errorf("%s: %g s, %v; want %g", name, got, err, want)
			}
		}
		if serverReadTimeout >= ioTimeout || serverReadTimeout < ioTimeout-2*time.Second {
			t.Errorf("the server gives a read %v, and the client waits for %v", serverReadTimeout, ioTimeout)
		}
	})
}
