package systemtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

const haproxyConfig = "../deploy/haproxy.cfg"

// TestProxyConfigurationIsValid: HAProxy takes deploy/haproxy.cfg as it is. It only warns that nobody here has Docker's names.
func TestProxyConfigurationIsValid(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), servertest.HAProxy(t), "-c", "-f", haproxyConfig).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "[WARNING]") && !strings.Contains(line, "could not resolve address 'app") {
			t.Error(line)
		}
	}
}

// startHAProxy runs HAProxy with the deployed configuration in front of i, at another address and with these limits in its
// environment, until the test ends. It returns an instance that is i behind the proxy.
func startHAProxy(t *testing.T, i *Instance, limits ...string) *Instance {
	t.Helper()
	return startHAProxyFor(t, i, strings.TrimPrefix(i.URL, "http://"), limits...)
}

// startHAProxyFor does that with another second instance.
func startHAProxyFor(t *testing.T, i *Instance, second string, limits ...string) *Instance {
	t.Helper()
	program := servertest.HAProxy(t)
	raw, err := os.ReadFile(haproxyConfig)
	if err != nil {
		t.Fatal(err)
	}
	addr := testkit.FreeAddress(t)
	config := regexp.MustCompile(`(?s)\nresolvers docker.*?\n\n`).ReplaceAllString(string(raw), "\n")
	config = regexp.MustCompile(` resolvers docker init-addr.*`).ReplaceAllString(config, "")
	config = strings.Replace(config, "bind :8080", "bind "+addr, 1)
	// An instance that stands still for seconds does not count as down.
	config = strings.Replace(config, "\ndefaults\n", "\ndefaults\n  timeout check 60s\n", 1)
	config = strings.Replace(config, "app1:8080", strings.TrimPrefix(i.URL, "http://"), 1)
	config = strings.Replace(config, "app2:8080", second, 1)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-db", "-f", file)
	cmd.Env = append(os.Environ(), limits...)
	behind := launch(t, cmd)
	behind.URL = "http://" + addr
	testkit.Eventually(t, "the proxy listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return behind
}

// TestProxyPassesEvents at once: a live stream gets an event while it stays open, so nothing waits in a buffer of the proxy.
func TestProxyPassesEvents(t *testing.T) {
	t.Parallel()
	i := Start(t, ownFile(t))
	behind := startHAProxy(t, i)
	behind.must(200, "GET", "/haproxy", "", "")
	d := MakeDrivers(t, behind, 1)[0]
	stream := openStream(t, behind, d.Token, "")
	id := MakeDispatch(t, behind)
	stream.await("event: dispatch.opened")
	mustWin(t, behind, id, d, 1)
	stream.await("event: dispatch.accepted")
}

// await reads the stream until the line has come.
func (s *openedStream) await(line string) {
	s.t.Helper()
	for got := ""; got != line; {
		var open bool
		select {
		case got, open = <-s.lines:
		case <-time.After(testkit.Patience): //nolint:forbidigo // it gives up, and fails
		}
		if !open {
			s.t.Fatalf("the stream has no line %q", line)
		}
	}
}

// TestProxyLimitsAnAddress: CONNECTIONS_PER_ADDRESS and REQUESTS_PER_ADDRESS bound what one address may do, as docs/callers.md
// says. Further connections are closed, further requests refused as the service itself would.
func TestProxyLimitsAnAddress(t *testing.T) {
	t.Parallel()
	const connections, requests = 5, 20
	i := Start(t, ownFile(t))
	behind := startHAProxy(t, i, fmt.Sprint("CONNECTIONS_PER_ADDRESS=", connections), fmt.Sprint("REQUESTS_PER_ADDRESS=", requests))
	asked := 0
	ask := func(conn net.Conn) (status string) {
		conn.SetDeadline(time.Now().Add(testkit.Patience))
		_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n") // the connection may be closed already
		status, _ = bufio.NewReader(conn).ReadString('\n')
		if status != "" {
			asked++
		}
		return strings.TrimSpace(status)
	}
	var open []net.Conn
	hangUp := func() {
		for _, conn := range open {
			conn.Close()
		}
		open = nil
	}
	for len(open) < connections {
		// HAProxy counts a connection until it has seen its end: that of the test whether it listens may still count.
		testkit.Eventually(t, fmt.Sprintf("an address has %d connections", connections), func() bool {
			conn := behind.dial()
			if ask(conn) != "HTTP/1.1 200 OK" {
				conn.Close()
				return false
			}
			open = append(open, conn)
			return true
		})
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(behind.URL, "http://")); err == nil { // it may be closed before Dial returns
		if status := ask(conn); status != "" {
			t.Errorf("one connection too many is answered with %q", status)
		}
		conn.Close()
	}
	hangUp()
	testkit.Eventually(t, "the address may connect again", func() bool { return send("GET", behind.URL+"/livez", "", "").status == 200 })
	for asked++; ; {
		// The test sends several requests at a time: on a busy machine, single requests stay below the rate. They use fewer connections than
		// the address may have, because HAProxy may still count closed ones.
		refused := 0
		for _, a := range several(connections-3, behind.URL+"/livez") {
			asked++
			switch {
			case a.status == 429:
				refused++
				if a.Code != "RATE_LIMITED" || a.header.Get("Retry-After") != "10" || a.header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("refused with %s, %v", a, a.header)
				}
			case a.status != 200:
				t.Fatalf("request %d: %s", asked, a)
			}
		}
		if refused > 0 {
			if asked < requests*9/10 { // HAProxy estimates the rate
				t.Errorf("of %d requests %d are refused, %d in 10 s are allowed", asked, refused, requests)
			}
			return
		}
		if asked > 100*requests {
			t.Fatalf("%d requests in a row are allowed, want %d in 10 s", asked, requests)
		}
	}
}

// TestProxyWithoutInstances: the proxy is healthy while one of two instances is ready. Without one it answers with a problem that says when
// to try again. It believes no client about TLS.
func TestProxyWithoutInstances(t *testing.T) {
	t.Parallel()
	i := Start(t, ownFile(t))
	behind := startHAProxyFor(t, i, testkit.FreeAddress(t))
	request, err := http.NewRequestWithContext(t.Context(), "GET", behind.URL+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Forwarded-Proto", "https")
	testkit.Eventually(t, "the second instance is out", func() bool {
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		resp.Body.Close()
		if resp.Header.Get("Strict-Transport-Security") != "" {
			t.Fatal("the proxy passes on that the client uses TLS")
		}
		return resp.StatusCode == 200 && strings.Contains(behind.log.String(), "Server firsttap/app2 is DOWN")
	})
	behind.must(200, "GET", "/haproxy", "", "")
	i.Kill()
	testkit.Eventually(t, "no instance is left", func() bool { return strings.Contains(behind.log.String(), "no server available") })
	behind.must(503, "GET", "/haproxy", "", "")
	for _, path := range []string{"/v1/me/offers", "/v1/stream", "/readyz"} {
		a := send("GET", behind.URL+path, "", "")
		if a.status != 503 || a.Code != "UNAVAILABLE" || a.header.Get("Retry-After") != "2" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s without an instance: %s, %v", path, a, a.header)
		}
	}
}

// several sends n GET requests at a time.
func several(n int, url string) []Response {
	responses := make([]Response, n)
	testkit.Together(n, func(k int) { responses[k] = send("GET", url, "", "") })
	return responses
}
