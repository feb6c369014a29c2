package auth

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/dispatch"
	. "firsttap/repository/repositorytest"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

var (
	driver = dispatch.DriverID("drv_" + strings.Repeat("1", 26))
	fixed  = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
)

// clock stands still until a test moves it.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// user adds a driver with that firebase_uid.
func user(t *testing.T, db *Bench, uid string) dispatch.DriverID {
	t.Helper()
	return db.AddDriver(t, func(v *dispatch.Driver) { v.FirebaseUID = uid }).ID
}

// counter is a SignInCounter for tests.
type counter struct {
	mu sync.Mutex
	n  map[Result]int
}

func (c *counter) CountSignIn(_ Method, r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[Result]int{}
	}
	c.n[r]++
}
