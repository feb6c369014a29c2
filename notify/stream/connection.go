package stream

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Connection is an HTTP/1 connection that its server has given up, after it had sent the headers of the answer.
type Connection struct {
	net.Conn
	// Chunked is for HTTP/1.1: the body is sent in chunks, so that its end differs from a lost connection.
	Chunked bool
	// WriteTimeout is how long a write may take before the connection is closed.
	WriteTimeout time.Duration
	// Check is called before each write. An error ends the stream.
	Check func(ctx context.Context) error
	// OnEnd is called when the connection is closed.
	OnEnd func()
}

// ServeConnection serves the stream on c as Serve does, in the background, and then closes both. So an idle stream needs two small
// goroutines, and nothing of the HTTP server: its buffers and deep stack end with the request.
func (s *Stream) ServeConnection(c Connection) {
	go func() {
		defer s.Close()
		defer c.OnEnd()
		defer c.Close()
		defer func() {
			if p := recover(); p != nil {
				s.hub.options.Log.Error("live stream panicked and is closed; its client connects again",
					"error", fmt.Sprintf("%v\n%s", p, debug.Stack()))
			}
		}()
		s.serveOn(&c)
	}()
}

func (s *Stream) serveOn(c *Connection) {
	// A write that waits for its client must not hold up a stop.
	defer context.AfterFunc(s.hub.lasting, func() { c.Close() })()
	var reading sync.WaitGroup
	reading.Go(func() {
		// Clients send nothing after their request. If one does, no more is read, and a write notices when that client is gone.
		if _, err := c.Read(make([]byte, 1)); err != nil {
			s.end(errGone)
			c.Close() // at once: the stream may be waiting for a database
		}
	})
	defer reading.Wait()
	defer c.Close()
	var broken error
	_ = s.serve(s.hub.lasting, func(frames [][]byte) error {
		if err := c.Check(s.hub.lasting); err != nil {
			return err
		}
		broken = c.write(frames)
		return broken
	}) // the stream's last event says why it ended, unless the client is gone
	if broken == nil && c.Chunked {
		_ = c.send(net.Buffers{[]byte("0\r\n\r\n")})
	}
}

// write sends the frames as one chunk.
func (c *Connection) write(frames [][]byte) error {
	if !c.Chunked {
		return c.send(append(net.Buffers(nil), frames...))
	}
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	chunk := make(net.Buffers, 0, len(frames)+2)
	chunk = append(chunk, fmt.Appendf(nil, "%x\r\n", size))
	chunk = append(chunk, frames...)
	return c.send(append(chunk, []byte("\r\n")))
}

func (c *Connection) send(b net.Buffers) error {
	if err := c.SetWriteDeadline(time.Now().Add(c.WriteTimeout)); err != nil {
		return err
	}
	_, err := b.WriteTo(c.Conn)
	return err
}
