package systemtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"firsttap/config"
	"firsttap/testkit"
)

// inProcess serves in this process, with these time limits, until the test ends.
func inProcess(t *testing.T, p config.Timeouts) *Instance {
	t.Helper()
	c := readSettings(t, "sqlite://"+filepath.Join(t.TempDir(), "test.db"))
	c.Timeouts = p
	i := &Instance{T: t, URL: serveHere(t, c).url}
	testkit.Eventually(t, "it is ready", i.isReady)
	return i
}

func (i *Instance) dial() net.Conn {
	i.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(i.URL, "http://"))
	if err != nil {
		i.T.Fatal(err)
	}
	i.T.Cleanup(func() { conn.Close() })
	return conn
}

// drip writes text, then one byte of more every 20 ms until the connection is closed. It returns the response, and an error
// if the server does not close the connection.
func drip(conn net.Conn, text, more string) (string, error) {
	var writing sync.WaitGroup
	gone := make(chan struct{})
	writing.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		_, err := io.WriteString(conn, text)
		for err == nil {
			select {
			case <-tick.C:
				_, err = io.WriteString(conn, more)
			case <-gone:
				return
			}
		}
	})
	conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	answer, err := io.ReadAll(conn)
	close(gone)
	writing.Wait()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return string(answer), err
}

// TestSlowClients lose the connection, and other clients are served meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	const bound = 500 * time.Millisecond
	i := inProcess(t, config.Timeouts{Headers: bound, Request: bound, Answer: 2 * bound, Idle: bound})
	d := MakeDrivers(t, i, 1)[0]
	head := "PUT /v1/me/duty HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + d.Token + "\r\n"
	slow := map[string][2]string{
		"nothing": {"", ""}, "a slow request line": {"G", "E"}, "slow headers": {head, "X"}, "a header after the other": {head, "X: y\r\n"},
		"a slow body": {head + "Content-Length: 1000\r\n\r\n{", " "}, "slow chunks": {head + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"},
		"no body": {head + "Content-Length: 1000\r\n\r\n", ""}, "idle after an answer": {"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", ""},
	}
	var all sync.WaitGroup
	for name, s := range slow {
		for range 20 {
			conn := i.dial()
			all.Go(func() {
				answer, err := drip(conn, s[0], s[1])
				if err != nil {
					t.Errorf("%s: the connection is still open: %v, %.100q", name, err, answer)
				}
				if name != "idle after an answer" && strings.Contains(answer, " 200 ") {
					t.Errorf("%s: %.200q", name, answer)
				}
			})
		}
	}
	served := 0
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
			if a := send("GET", i.URL+"/v1/me", d.Token, ""); a.status == 429 {
				break
			} else if a.status != 200 {
				t.Fatalf("meanwhile: %s", a)
			}
			served++
		}
	}
	if served == 0 {
		t.Error("no other client was served meanwhile")
	}
}

// TestLargeRequests are refused without being read: headers of more than 16 KiB, bodies of more than 64.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	i := inProcess(t, config.Timeouts{})
	d := MakeDrivers(t, i, 1)[0]
	ask := func(text string) string {
		conn := i.dial()
		conn.SetDeadline(time.Now().Add(testkit.Patience))
		go io.WriteString(conn, text)
		line, _ := bufio.NewReader(conn).ReadString('\n')
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
