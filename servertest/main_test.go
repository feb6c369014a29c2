package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// patience bounds what must happen; glance is how long a test looks at what must not happen.
const (
	patience = 20 * time.Second
	glance   = 50 * time.Millisecond
)

// client speaks to a Redis, one command at a time.
type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	if conn, err := net.DialTimeout("tcp", addr, patience); err == nil {
		conn.Close()
		return fmt.Errorf("something listens on %s", addr)
	}
	return nil
}
