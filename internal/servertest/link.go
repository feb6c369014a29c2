package servertest

import (
	"bytes"
	"context"
	"net"
	"strings"
	"time"
)

// link is one client's connection through a proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn // nil if the link started in a blackhole
	ctx    context.Context
	close  context.CancelFunc // ends ctx: nothing that is read later is passed on, and both connections are closed

	// Guarded by proxy.mu.
	cut       *Cut // applies to the next reply; nil for none
	swallowed bool // a blackhole lost bytes, so the stream is broken
}

// run passes bytes both ways and returns when the link is closed.
func (l *link) run() {
	defer context.AfterFunc(l.ctx, func() { l.client.Close() })()
	if l.proxy.swallow(l) {
		l.pass(l.client, func([]byte) bool { return true })
		<-l.ctx.Done()
		return
	}
	network, target := "tcp", l.proxy.destination()
	if strings.HasPrefix(target, "/") {
		network = "unix"
	}
	server, err := (&net.Dialer{}).DialContext(l.ctx, network, target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(l.ctx, func() { server.Close() })()
	l.server = server

	var w window
	l.proxy.running.Go(func() { l.pass(l.client, func(piece []byte) bool { return l.request(&w, piece) }) })
	l.pass(server, l.reply)
	<-l.ctx.Done()
}

// pass hands what it reads to one direction of the link. It closes the link at that direction's end, unless the other
// side must not notice: in a blackhole, or while the server's reply to a request is awaited.
func (l *link) pass(from net.Conn, to func([]byte) bool) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if l.ctx.Err() != nil || n > 0 && !to(piece[:n]) {
			break
		}
		if err == nil {
			continue
		}
		if l.proxy.swallow(l) || from == l.client && l.proxy.cutOf(l) != nil {
			return
		}
		break
	}
	l.close()
}

// request handles a piece from the client, and reports whether the link goes on.
func (l *link) request(w *window, piece []byte) bool {
	if l.proxy.swallow(l) {
		w.clear()
		return true
	}
	if h := l.proxy.matchHold(l, w, piece); h != nil {
		close(h.reached)
		select {
		case <-h.released:
		case <-l.ctx.Done():
		}
		if l.ctx.Err() != nil { // also if both have come
			return false
		}
		if l.proxy.swallow(l) {
			w.clear()
			return true
		}
	}
	// Before the server can answer, so that no byte of the reply slips through.
	l.proxy.matchCut(l, w, piece)
	w.add(piece)
	_, err := l.server.Write(piece)
	return err == nil
}

// reply handles a piece from the server, and reports whether the link goes on.
func (l *link) reply(piece []byte) bool {
	if c := l.proxy.cutOf(l); c != nil {
		l.client.Close()
		l.server.Close()
		close(c.done)
		return false
	}
	if late := l.proxy.lateness(); late > 0 {
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return false
		}
	}
	if l.proxy.swallow(l) {
		return true
	}
	_, err := l.client.Write(piece)
	return err == nil
}

// longestMatch is the length of the longest match that a window finds when it straddles two pieces.
const longestMatch = 1 << 10

// window remembers the last bytes that a client has sent.
type window struct{ last []byte }

// contains reports whether an occurrence of match ends in piece, which follows the bytes added before.
func (w *window) contains(piece []byte, match string) bool {
	start := w.last[max(0, len(w.last)-(len(match)-1)):]
	return bytes.Contains(append(bytes.Clone(start), piece...), []byte(match))
}

func (w *window) add(piece []byte) {
	w.last = append(w.last, piece...)
	w.last = append(w.last[:0], w.last[max(0, len(w.last)-longestMatch):]...)
}

func (w *window) clear() { w.last = w.last[:0] }
