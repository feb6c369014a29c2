package systemtest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"firsttap/internal/testkit"
)

func (i *Instance) dial() net.Conn {
	i.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(i.URL, "http://"))
	if err != nil {
		i.T.Fatal(err)
	}
	i.T.Cleanup(func() { conn.Close() })
	return conn
}

// TestLargeHeaders are refused without being read, from 16 KiB on.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	i := Start(t, ownFile(t))
	// The instance closes a connection on which no headers have come for 5 s, without a response. Such a request is sent again.
	ask := func(text string) (line string) {
		testkit.Poll(testkit.Patience, func() bool {
			conn := i.dial()
			conn.SetDeadline(time.Now().Add(testkit.Patience))
			go io.WriteString(conn, text)
			line, _ = bufio.NewReader(conn).ReadString('\n')
			return line != ""
		})
		return line
	}
	const rest = "Host: x\r\nConnection: close\r\n"
	for size, want := range map[int]string{15 << 10: " 200 ", 17 << 10: " 431 ", 1 << 20: " 431 "} {
		for name, text := range map[string]string{
			"a header":     "GET /livez HTTP/1.1\r\n" + rest + "X-Large: " + strings.Repeat("a", size) + "\r\n\r\n",
			"many headers": "GET /livez HTTP/1.1\r\n" + rest + strings.Repeat("X: 3456789\r\n", size/12) + "\r\n",
			"the address":  "GET /livez?" + strings.Repeat("a", size) + " HTTP/1.1\r\n" + rest + "\r\n",
			"the token":    "GET /livez HTTP/1.1\r\n" + rest + "Authorization: Bearer " + strings.Repeat("a", size) + "\r\n\r\n",
		} {
			if got := ask(text); !strings.Contains(got, want) {
				t.Errorf("%s of %d bytes: %q, want%s", name, size, got, want)
			}
		}
	}
}
