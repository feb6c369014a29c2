package systemtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"firsttap/testkit"
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

// TestLargeRequests are refused without being read: headers of more than 16 KiB, bodies of more than 64.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	i := Start(t, ownFile(t))
	d := MakeDrivers(t, i, 1)[0]
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
	put := "PUT /v1/me/duty HTTP/1.1\r\nAuthorization: Bearer " + d.Token + "\r\n" + rest
	large := `{"on_duty":true` + strings.Repeat(" ", 64<<10) + "}"
	for name, text := range map[string]string{
		"with its length": put + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large),
		"in chunks":       put + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(large), large),
		"an honest liar":  put + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 1<<40, large),
	} {
		if got := ask(text); !strings.Contains(got, " 413 ") {
			t.Errorf("a large body %s: %q", name, got)
		}
	}
	for name, text := range map[string]string{
		"two lengths": put + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "length and chunks": put + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an unknown encoding": put + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "no host": "GET /livez HTTP/1.1\r\n\r\n", "two hosts": "GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
	} {
		if got := ask(text); !strings.Contains(got, " 4") && !strings.Contains(got, " 501 ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
