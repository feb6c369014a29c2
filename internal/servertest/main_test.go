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

	"firsttap/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// glance is how long a test waits for an event that must not come.
const glance = 50 * time.Millisecond

// client speaks to a Redis, one command at a time.
type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{Conn: conn, in: bufio.NewReader(conn)}
}

func (c *client) send(t testing.TB, command string) {
	t.Helper()
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
}

// reply reads one answer: its text, or "(nil)".
func (c *client) reply(within time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	line, err := c.in.ReadString('\n')
	switch {
	case err != nil:
		return line, err
	case line == "$-1\r\n":
		return "(nil)", nil
	case line[0] == '$':
		line, err = c.in.ReadString('\n')
	}
	return strings.TrimSpace(line), err
}

// ask fails the test unless the answer to command is want.
func (c *client) ask(t testing.TB, command, want string) {
	t.Helper()
	c.send(t, command)
	c.mustReply(t, want)
}

func (c *client) mustReply(t testing.TB, want string) {
	t.Helper()
	if got, err := c.reply(testkit.Patience); err != nil || got != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// mustBeSilent fails the test unless nothing comes, not even the connection's end.
func (c *client) mustBeSilent(t testing.TB) {
	t.Helper()
	if got, err := c.reply(glance); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v; want silence", got, err)
	}
}

// mustEnd fails the test unless the connection ends without another byte.
func (c *client) mustEnd(t testing.TB) {
	t.Helper()
	if got, err := c.reply(testkit.Patience); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v; want the connection's end", got, err)
	}
}

func isGone(addr string) error {
	if conn, err := net.DialTimeout("tcp", addr, testkit.Patience); err == nil {
		conn.Close()
		return fmt.Errorf("something listens on %s", addr)
	}
	return nil
}
