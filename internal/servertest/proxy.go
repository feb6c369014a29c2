package servertest

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy between programs and one server. It breaks their connections in the way that a test chooses.
//
// CutReply and Hold find a request by bytes that the client sends: the text of a MySQL query, or a Redis command's words
// and keys. A prepared statement's text passes when it is prepared, and not when it is executed.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	target    string
	links     map[*link]bool
	cuts      []*Cut
	holds     []*Hold
	blackhole bool
	refuse    bool
	delay     time.Duration
}

// Cut is a reply that will be lost: see [Proxy.CutReply].
type Cut struct {
	trigger
	done chan struct{}
}

// Done is closed when the reply was lost: the server has answered, and the client will not get the answer.
func (c *Cut) Done() <-chan struct{} { return c.done }

// Hold is a request that will be held back: see [Proxy.Hold].
type Hold struct {
	trigger
	reached  chan struct{}
	released chan struct{}
	release  func()
}

// Reached is closed when the request has arrived and is held back.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Release passes the request on to the server, even if its client is gone. After an early Release the request is not held
// at all. A second Release does nothing.
func (h *Hold) Release() { h.release() }

// trigger finds a request.
type trigger struct {
	match, after string
	links        map[*link]bool // on which after was sent
}

// matches reports whether a piece of what l's client sends completes the match.
func (a *trigger) matches(l *link, w *window, piece []byte) bool {
	if a.after != "" && !a.links[l] {
		a.links[l] = w.contains(piece, a.after)
		return false
	}
	return w.contains(piece, a.match)
}

func (p *Proxy) trigger(match string, after []string) trigger {
	p.t.Helper()
	p.checkMatch(match)
	a := trigger{match: match, links: map[*link]bool{}}
	if len(after) > 0 {
		p.checkMatch(after[0])
		a.after = after[0]
	}
	return a
}

// StartProxy starts a proxy to the server at target, a host:port or the path of a Unix socket. While the server is down, the
// proxy closes new connections. The proxy and its connections end with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{t: t, target: target, listener: listener, links: make(map[*link]bool)}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		p.Refuse(true)
		_ = listener.Close()
		p.running.Wait()
	})
	return p
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is u with the proxy's host and port.
func (p *Proxy) URL(u string) string {
	p.t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		p.t.Fatalf("proxy: %v", err)
	}
	parsed.Host = p.Addr()
	return parsed.String()
}

// CutReply loses the reply to the next request that contains match, once: the proxy passes the request on, waits for the
// answer, drops it and closes both connections. The client sees no byte of it. A client that hangs up meanwhile changes
// nothing. With after, the request must follow one that contains after, on the same connection and from now on.
func (p *Proxy) CutReply(match string, after ...string) *Cut {
	p.t.Helper()
	c := &Cut{trigger: p.trigger(match, after), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c
}

// Hold holds back the next request that contains match, once, until Release, with all that the client sends along with and
// after it on that connection. after is CutReply's.
func (p *Proxy) Hold(match string, after ...string) *Hold {
	p.t.Helper()
	h := &Hold{trigger: p.trigger(match, after), reached: make(chan struct{}), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

func (p *Proxy) checkMatch(match string) {
	p.t.Helper()
	if match == "" || len(match) > longestMatch {
		p.t.Fatalf("proxy: a match must have 1 to %d bytes: %q", longestMatch, match)
	}
}

// Blackhole swallows everything, in both directions, while it is on: connections stay open, new ones are accepted, and
// neither side notices that the other has hung up. Turning it off closes the connections that lost bytes; the others go
// on.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackhole = on
	if on {
		return
	}
	for l := range p.links {
		if l.swallowed {
			l.close()
		}
	}
}

// Refuse closes all connections, and new ones at once, while it is on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
	if on {
		p.closeLinks()
	}
}

// CutAll closes every connection. New ones are served.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLinks()
}

// Redirect leads new connections to the server at target. Existing connections stay.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Delay delays each piece from the server by d; 0 ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// closeLinks needs p.mu.
func (p *Proxy) closeLinks() {
	for l := range p.links {
		l.close()
	}
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve runs one client's connection to its end.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &link{proxy: p, client: client, ctx: ctx, close: cancel}
	if p.add(l) {
		l.run()
		p.remove(l)
	}
}

// add registers l, and marks it as swallowed if it starts in a blackhole. It returns false while connections are refused.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		return false
	}
	p.links[l] = true
	l.swallowed = p.blackhole
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// swallow reports whether l's bytes are lost now, and records that on l.
func (p *Proxy) swallow(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.swallowed = l.swallowed || p.blackhole
	return p.blackhole
}

// matchHold removes and returns the first hold that the piece of a request matches.
func (p *Proxy) matchHold(l *link, w *window, piece []byte) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.holds, func(h *Hold) bool { return h.matches(l, w, piece) })
	if i < 0 {
		return nil
	}
	h := p.holds[i]
	p.holds = slices.Delete(p.holds, i, i+1)
	return h
}

// matchCut removes the first cut that the piece of a request matches, and applies it to l's next reply.
func (p *Proxy) matchCut(l *link, w *window, piece []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.cuts, func(c *Cut) bool { return c.matches(l, w, piece) })
	if i < 0 || l.cut != nil {
		return
	}
	l.cut = p.cuts[i]
	p.cuts = slices.Delete(p.cuts, i, i+1)
}

// cutOf is the cut that applies to l's next reply, or nil.
func (p *Proxy) cutOf(l *link) *Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.cut
}

func (p *Proxy) destination() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) lateness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}
