package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/dns/dnsmessage"

	"firsttap/dispatch/webhook"
)

// forbidden are hosts that no delivery may be sent to, with a port of its own behind each: one of each kind of address, of which the library
// has the list, and the forms of an address that some programs read and others do not.
var forbidden = map[string]string{
	"loopback":                          "127.8.9.10",
	"loopback with dots behind":         "127.0.0.1..",
	"loopback in decimal":               "2130706433",
	"loopback in octal":                 "017700000001",
	"loopback in capital hexadecimal":   "0X7F000001",
	"loopback in mixed parts":           "0x7f.0.01",
	"loopback in two parts":             "127.1",
	"loopback with leading zeros":       "127.000.000.001",
	"loopback in decimal with a dot":    "2130706433.",
	"a hexadecimal prefix alone":        "0x",
	"loopback in wide digits":           "１２７.０.０.１",
	"loopback with ideographic dots":    "127。0。0。1",
	"a circled name":                    "ⓛocalhost",
	"loopback by name, dot and capital": "LocalHost.",
	"loopback in IPv6":                  "[0:0:0:0:0:0:0:1]",
	"loopback mapped to IPv6":           "[::ffff:7f00:1]",
	"private by 6to4":                   "[2002:c0a8:101::1]",
	"loopback by NAT64":                 "[64:ff9b::7f00:1]",
	"this network":                      "0.1.2.3",
	"unspecified in IPv6":               "[::]",
	"private, 10":                       "10.0.0.1",
	"private, 172.31":                   "172.31.255.255",
	"private, 192.168":                  "192.168.1.1",
	"carrier-grade NAT":                 "100.100.100.200",
	"the metadata service":              "169.254.169.254",
	"the metadata service mapped":       "[::ffff:169.254.169.254]",
	"the metadata service in IPv6":      "[fd00:ec2::254]",
	"link-local in IPv6 with a zone":    "[fe80::1%25lo]",
	"a global address with a zone":      "[2606:4700::1111%25lo]",
	"multicast":                         "239.255.255.250",
	"reserved":                          "240.0.0.1",
	"documentation":                     "203.0.113.1",
}

// TestAddressesThatAreRefused: a URL with a forbidden host is refused when it is registered and when it is sent to, by https and by http,
// and nothing arrives.
func TestAddressesThatAreRefused(t *testing.T) {
	listener := listenForNobody(t)
	c := NewClient(ClientOptions{})
	defer c.Close()
	for name, host := range forbidden {
		t.Run(name, func(t *testing.T) {
			for _, scheme := range []string{"https", "http"} {
				url := fmt.Sprintf("%s://%s:%d/hook", scheme, host, listener.port)
				if err := c.Check(t.Context(), url); !errors.Is(err, webhook.ErrNotAllowed) {
					t.Errorf("%s may be registered: %v", url, err)
				}
				mustRefuse(t, c, url)
			}
			// Whatever the check of URLs says, the connection is refused.
			if conn, err := c.transport.DialContext(t.Context(), "tcp", fmt.Sprintf("%s:%d", strings.ReplaceAll(host, "%25", "%"), listener.port)); err == nil {
				conn.Close()
				t.Error("a connection was opened")
			}
		})
	}
	listener.mustBeUntouched(t)
}

// TestNetworkPolicyRefusesTheSame: the sample network policy lets no pod reach a forbidden address either.
func TestNetworkPolicyRefusesTheSame(t *testing.T) {
	var policy struct {
		Spec struct {
			Egress []struct {
				To []struct {
					Block struct {
						CIDR   netip.Prefix   `yaml:"cidr"`
						Except []netip.Prefix `yaml:"except"`
					} `yaml:"ipBlock"`
				}
			}
		}
	}
	text, err := os.ReadFile("../../deploy/kubernetes/network.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &policy)
	}
	if err != nil {
		t.Fatal(err)
	}
	public := func(a netip.Addr) (allowed bool) {
		for _, rule := range policy.Spec.Egress {
			for _, to := range rule.To {
				allowed = allowed || to.Block.CIDR.Contains(a) && !slices.ContainsFunc(to.Block.Except, func(p netip.Prefix) bool { return p.Contains(a) })
			}
		}
		return allowed
	}
	for name, host := range forbidden {
		host = strings.Trim(host, "[]") // one with a zone is refused by its URL alone
		if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" && public(a.Unmap()) {
			t.Errorf("%s: the policy allows %s", name, a)
		}
	}
	for _, host := range []string{"1.1.1.1", "142.250.206.10", "2606:4700:4700::1111", "2404:6800:400a::200a"} {
		if !public(netip.MustParseAddr(host)) {
			t.Errorf("the policy refuses %s", host)
		}
	}
}

// TestURLsThatAreRefused: so are URLs for what else is in them.
func TestURLsThatAreRefused(t *testing.T) {
	c := NewClient(ClientOptions{})
	defer c.Close()
	for _, url := range []string{
		"http://example.com/", "HTTP://example.com/", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "//example.com/hook", "",
		"https:///hook", "https:example.com", "https://..:443/", "https://user@example.com/", "https://@example.com/", "https://example.com:0/",
		"https://example.com:65536/", "https://93.184.216.34@127.0.0.1/", "https://127.0.0.1\\@example.com/",
	} {
		err := c.Check(t.Context(), url)
		if err == nil {
			t.Errorf("%q may be registered", url)
		}
		if !errors.Is(err, webhook.ErrNotAllowed) && !strings.Contains(err.Error(), "not a URL") {
			t.Errorf("%q: %v", url, err)
		}
		mustRefuse(t, c, url)
	}
	for _, url := range []string{"https://[::1", "https://exa mple.com/", "https://example.com:port/", "https://%31%32%37.0.0.1/", "https://a\x00b/", "://"} {
		if err := c.Check(t.Context(), url); err == nil || errors.Is(err, webhook.ErrNotAllowed) {
			t.Errorf("%q: %v; want an error about the URL itself", url, err)
		}
		mustRefuse(t, c, url)
	}
}

// TestPublicAddresses: what is on the public Internet may be registered.
func TestPublicAddresses(t *testing.T) {
	dns, _ := startDNS(t, func(string, int) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2606:2800:220:1::1")}
	})
	c := NewClient(ClientOptions{Resolver: dns})
	defer c.Close()
	for _, url := range []string{
		"https://hooks.example.com/a/b?token=1#top", "https://hooks.example.com:8443", "HTTPS://hooks.example.com./", "https://8.8.8.8/", "https://172.15.255.255/",
		"https://172.32.0.1/", "https://100.63.255.255/", "https://[2606:4700::1111]:443/", "https://0x7f.example.com/", "https://xn--3e0b707e.example.com/", "https://1.example.com/",
	} {
		if err := c.Check(t.Context(), url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestNamesOfForbiddenAddresses: a name may not be registered if one of its addresses is forbidden, and not if it has none.
func TestNamesOfForbiddenAddresses(t *testing.T) {
	answers := map[string][]netip.Addr{
		"mixed.example.com.":  {netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.0.0.1")},
		"six.example.com.":    {netip.MustParseAddr("fd00::1")},
		"mapped.example.com.": {netip.MustParseAddr("::ffff:10.0.0.1")},
		"inner.example.com.":  {netip.MustParseAddr("169.254.169.254")},
	}
	dns, _ := startDNS(t, func(name string, _ int) []netip.Addr { return answers[name] })
	c := NewClient(ClientOptions{Resolver: dns})
	defer c.Close()
	for name := range answers {
		if err := c.Check(t.Context(), "https://"+name+"/"); !errors.Is(err, webhook.ErrNotAllowed) {
			t.Errorf("%s may be registered: %v", name, err)
		}
	}
	if err := c.Check(t.Context(), "https://nothing.example.com/"); !errors.Is(err, webhook.ErrNoAddress) || errors.Is(err, webhook.ErrNotAllowed) {
		t.Errorf("a name that does not exist: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Check(ctx, "https://mixed.example.com/"); !errors.Is(err, webhook.ErrNotLookedUp) || errors.Is(err, webhook.ErrNoAddress) {
		t.Errorf("a name that nobody has looked up: %v", err)
	}
}

// TestNameThatChanges: a name that had a public address when it was registered, and has this machine's at the next look-up, is refused when
// a delivery is sent, and nothing arrives.
func TestNameThatChanges(t *testing.T) {
	listener := listenForNobody(t)
	dns, asked := startDNS(t, func(_ string, look int) []netip.Addr {
		if look == 0 {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	c := NewClient(ClientOptions{Resolver: dns})
	defer c.Close()
	url := fmt.Sprintf("https://rebind.example.com:%d/", listener.port)
	if err := c.Check(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	mustRefuse(t, c, url)
	if asked.Load() == before {
		t.Error("the name was not looked up again: the test has shown nothing")
	}
	listener.mustBeUntouched(t)
}

// TestRedirectsThatAreRefused: no redirect, of whatever kind, leads to a forbidden address, and only those that repeat the delivery are
// followed at all. The endpoint that redirects is at the only address that the test's client allows.
func TestRedirectsThatAreRefused(t *testing.T) {
	listener := listenForNobody(t)
	var target atomic.Value
	var status atomic.Int64
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", target.Load().(string))
		w.WriteHeader(int(status.Load()))
	}))
	defer endpoint.Close()
	c := clientOf(t, endpoint)
	for _, s := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		status.Store(int64(s))
		for name, host := range forbidden {
			for _, scheme := range []string{"https", "http"} {
				target.Store(fmt.Sprintf("%s://%s:%d/", scheme, host, listener.port))
				r := c.Attempt(t.Context(), leaseTo(publicName))
				notFollowed := r.Attempt.HTTPStatus == s // otherwise the connection was refused
				if r.Succeeded() || !notFollowed && (r.Attempt.HTTPStatus != 0 || s < 307) {
					t.Errorf("%d to %s by %s: %+v", s, name, scheme, r.Attempt)
				}
			}
		}
	}
	listener.mustBeUntouched(t)
	for _, to := range []string{"ftp://example.com/", "https://u:p@" + publicHost + "/", "http://" + publicHost + "/", "file:///etc/passwd", "https://", "//127.0.0.1/"} {
		status.Store(308)
		target.Store(to)
		if r := c.Attempt(t.Context(), leaseTo(publicName)); r.Succeeded() {
			t.Errorf("redirect to %s: %+v", to, r.Attempt)
		}
	}
}

// mustRefuse sends a delivery to the URL, which must be refused.
func mustRefuse(t *testing.T, c *Client, url string) {
	t.Helper()
	r := c.Attempt(t.Context(), leaseTo(url))
	if r.Succeeded() || r.Attempt.HTTPStatus != 0 {
		t.Errorf("a delivery to %q was sent: %+v", url, r.Attempt)
	}
}

// nobody is a listener on all addresses of this machine to which nothing may be sent.
type nobody struct {
	net.Listener
	port int
}

func listenForNobody(t *testing.T) nobody {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return nobody{l, l.Addr().(*net.TCPAddr).Port}
}

// mustBeUntouched fails the test unless the first connection that has arrived is the test's own.
func (n nobody) mustBeUntouched(t *testing.T) {
	t.Helper()
	own, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	first, err := n.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if first.RemoteAddr().(*net.TCPAddr).Port != own.LocalAddr().(*net.TCPAddr).Port {
		t.Errorf("a connection from %s arrived", first.RemoteAddr())
	}
}

// startDNS returns a resolver that asks a DNS server of the test, and the number of questions. The server answers each question with what
// answer returns for its name and the number of earlier questions for the same; nil is that there is no such name.
func startDNS(t *testing.T, answer func(name string, look int) []netip.Addr) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	looks := map[dnsmessage.Question]int{}
	reply := func(m *dnsmessage.Message) {
		q := m.Questions[0]
		addresses := answer(q.Name.String(), looks[q])
		if m.Response, m.Additionals = true, nil; addresses == nil {
			m.RCode = dnsmessage.RCodeNameError
		}
		for _, a := range addresses {
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type}
			if q.Type == dnsmessage.TypeA && a.Is4() {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
			} else if q.Type == dnsmessage.TypeAAAA && a.Is6() {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
		looks[q]++
		asked.Add(1)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) == nil && len(m.Questions) == 1 {
				reply(&m)
				packed, _ := m.Pack()
				_, _ = conn.WriteTo(packed, from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); serving.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, &asked
}

// publicName is the URL of an endpoint at publicHost, a name that only clientOf's clients reach.
const (
	publicHost = "example.com" // the certificate of httptest is for it
	publicName = "https://" + publicHost + "/hook?token=hush"
)

// clientOf returns a client to which the server is publicHost, and every other address is what it is.
func clientOf(t *testing.T, server *httptest.Server) *Client {
	t.Helper()
	c := NewClient(ClientOptions{})
	t.Cleanup(c.Close)
	c.transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	dial := c.transport.DialContext
	c.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(address); host == publicHost {
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		}
		return dial(ctx, network, address)
	}
	return c
}

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// leaseTo is a lease of a delivery to the URL.
func leaseTo(url string) webhook.Lease {
	body, _ := json.Marshal(map[string]string{"type": "dispatch.accepted"})
	return webhook.Lease{
		Delivery: webhook.Delivery{ID: "whd_1", Endpoint: "whk_1", Event: "evt_1", Dispatch: "dsp_1", Type: "dispatch.accepted", Body: body},
		Attempt:  1, LeasedUntil: time.Now().Add(30 * time.Second), URL: url, Secrets: webhook.Secrets{Current: testSecret},
	}
}
