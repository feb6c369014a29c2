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

// Proxy is a TCP proxy between programs and one server. It breaks their connections in the way a test asks for.
//
// CutReply and Hold find a request by bytes that the client sends: the text of a MySQL query, or a Redis command's words
// and keys. The text of a prepared statement is seen when it is prepared and not when it is executed.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu        sync.Mutex // guards what follows
	target    string
	links     map[*link]bool
	cuts      []*Cut
	holds     []*Hold
	blackhole bool
	refuse    bool
	delay     time.Duration
}

// Cut is a reply that will be lost; see [Proxy.CutReply].
type Cut struct {
	aim
	done chan struct{}
}

// Done is closed when the reply was lost: the server has answered the request, and the client won't learn it.
func (c *Cut) Done() <-chan struct{} { return c.done }

// Hold is a request that will be late; see [Proxy.Hold].
type Hold struct {
	aim
	reached  chan struct{}
	released chan struct{}
	release  func()
}

// Reached is closed when the request has come and is held back.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Release lets the request go on to the server, even if its client is gone by now. Before the request has come, Release
// means that it is not held at all. Releasing again does nothing.
func (h *Hold) Release() { h.release() }

// aim finds a request.
type aim struct {
	match, after string
	links        map[*link]bool // on which after was sent
}

// meets reports whether the piece of what l's client sends meets the aim.
func (a *aim) meets(l *link, w *window, piece []byte) bool {
	if a.after != "" && !a.links[l] {
		a.links[l] = w.contains(piece, a.after)
		return false
	}
	return w.contains(piece, a.match)
}

func (p *Proxy) aim(match string, after []string) aim {
	p.t.Helper()
	p.checkMatch(match)
	a := aim{match: match, links: map[*link]bool{}}
	if len(after) > 0 {
		p.checkMatch(after[0])
		a.after = after[0]
	}
	return a
}

// StartProxy starts a proxy to the server at target, a host:port. The server may be down: then the proxy closes what
// comes. With the test, the proxy and every connection through it end.
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

// URL is u by way of the proxy: with its host and port replaced, and the rest kept.
func (p *Proxy) URL(u string) string {
	p.t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		p.t.Fatalf("proxy: %v", err)
	}
	parsed.Host = p.Addr()
	return parsed.String()
}

// CutReply loses the reply to the next request that contains match: the request is passed on, the server's answer is
// waited for and thrown away, and both sides of that connection are closed. The client sees no byte of the answer. A
// client that hangs up meanwhile changes nothing. It happens once. With after, only a request that follows one that
// contains after, on the same connection and from now on, is meant.
func (p *Proxy) CutReply(match string, after ...string) *Cut {
	p.t.Helper()
	c := &Cut{aim: p.aim(match, after), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c
}

// Hold keeps the next request that contains match, and what the client sends with and after it on that connection,
// until Release. It happens once. after is as of CutReply.
func (p *Proxy) Hold(match string, after ...string) *Hold {
	p.t.Helper()
	h := &Hold{aim: p.aim(match, after), reached: make(chan struct{}), released: make(chan struct{})}
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
// nothing arrives, not even that a side has hung up. When it is turned off, the connections that lost something by it
// are closed; the others go on.
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

// Redirect has new connections lead to the server at target. Those that are there go on.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Delay makes each piece that comes from the server late by d; 0 ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// closeLinks wants p.mu held.
func (p *Proxy) closeLinks() {
	for l := range p.links {
		l.close()
	}
}

// accept serves what connects until the listener is closed.
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

// add makes l known, and marks it as swallowed if it starts in a blackhole. It is false if new connections are refused.
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

// swallow reports whether l's bytes are to vanish, and remembers that they did.
func (p *Proxy) swallow(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.swallowed = l.swallowed || p.blackhole
	return p.blackhole
}

// takeHold finds the first hold that the piece of a request meets, and takes it off the list.
func (p *Proxy) takeHold(l *link, w *window, piece []byte) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.holds, func(h *Hold) bool { return h.meets(l, w, piece) })
	if i < 0 {
		return nil
	}
	h := p.holds[i]
	p.holds = slices.Delete(p.holds, i, i+1)
	return h
}

// takeCut finds the first cut that the piece of a request meets, takes it off the list and makes l's next reply the one
// that is lost.
func (p *Proxy) takeCut(l *link, w *window, piece []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.cuts, func(c *Cut) bool { return c.meets(l, w, piece) })
	if i < 0 || l.cut != nil {
		return
	}
	l.cut = p.cuts[i]
	p.cuts = slices.Delete(p.cuts, i, i+1)
}

// cutOf is the cut that l's next reply falls to, or nil.
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
