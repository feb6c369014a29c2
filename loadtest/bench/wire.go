package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// wire is one driver's keep-alive connection. It writes prepared bytes and reads no more of a response than is judged:
// net/http's client costs more than the fastest server here, and would hide the differences.
type wire struct {
	conn  net.Conn
	after []byte // the request from the dispatch id on
	out   []byte
	in    []byte
}

// requestStart is a request up to the dispatch id.
const requestStart = "POST /v1/dispatches/"

// reply is a response. Its body is valid until the wire's next request.
type reply struct {
	status int
	body   []byte
}

// taken reports whether this is the right response to a loser.
func (r reply) taken() bool {
	return r.status == 409 && bytes.Contains(r.body, []byte(`"ALREADY_TAKEN"`))
}

// replayed reports whether this repeats an earlier response to the winner.
func (r reply) replayed() bool {
	return r.status == 200 && bytes.Contains(r.body, []byte(`"replayed":true`))
}

// dial connects to address for the driver with that token.
func dial(address, token string) (*wire, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	const body = `{"round":1}`
	return &wire{
		conn: conn,
		after: fmt.Appendf(nil, "/accept HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", address, token, len(body), body),
		in: make([]byte, 0, 8<<10),
	}, nil
}

// tap sends one accept of the dispatch and waits for the whole response.
func (w *wire) tap(id string) (reply, error) {
	w.out = append(append(append(w.out[:0], requestStart...), id...), w.after...)
	if _, err := w.conn.Write(w.out); err != nil {
		return reply{}, err
	}
	w.in = w.in[:0]
	for {
		if len(w.in) == cap(w.in) {
			return reply{}, errors.New("answer does not fit the buffer")
		}
		n, err := w.conn.Read(w.in[len(w.in):cap(w.in)])
		if err != nil {
			return reply{}, err
		}
		w.in = w.in[:len(w.in)+n]
		r, size, err := parseReply(w.in)
		if err != nil {
			return reply{}, err
		}
		if size == len(w.in) {
			return r, nil
		}
		if size > 0 {
			return reply{}, errors.New("more bytes than one answer")
		}
	}
}

var (
	headEnd   = []byte("\r\n\r\n")
	lineEnd   = []byte("\r\n")
	version11 = []byte("HTTP/1.1 ")
	lengthKey = []byte("Content-Length")
	codingKey = []byte("Transfer-Encoding")
	chunked   = []byte("chunked")
)

// parseReply parses one HTTP/1.1 response at the start of b. size is its length in bytes, 0 while more bytes are needed. A
// response with neither Content-Length nor a chunked body is an error: on a keep-alive connection it would have no end.
func parseReply(b []byte) (r reply, size int, err error) {
	end := bytes.Index(b, headEnd)
	if end < 0 {
		return reply{}, 0, nil
	}
	head, rest := b[:end], b[end+len(headEnd):]
	line, head, _ := bytes.Cut(head, lineEnd)
	if !bytes.HasPrefix(line, version11) || len(line) < 12 {
		return reply{}, 0, fmt.Errorf("not an HTTP/1.1 answer: %.40q", line)
	}
	if r.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return reply{}, 0, fmt.Errorf("status: %.40q", line)
	}
	length := -1
	for len(head) > 0 {
		line, head, _ = bytes.Cut(head, lineEnd)
		key, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(key, lengthKey):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || length < 0 {
				return reply{}, 0, fmt.Errorf("length: %.40q", line)
			}
		case bytes.EqualFold(key, codingKey) && bytes.EqualFold(bytes.TrimSpace(value), chunked):
			body, used, err := parseChunks(rest)
			if used == 0 || err != nil {
				return reply{}, 0, err
			}
			r.body = body
			return r, end + len(headEnd) + used, nil
		}
	}
	switch {
	case r.status == 204:
		length = 0
	case length < 0:
		return reply{}, 0, errors.New("answer without Content-Length")
	case len(rest) < length:
		return reply{}, 0, nil
	}
	r.body = rest[:length]
	return r, end + len(headEnd) + length, nil
}

// parseChunks parses a chunked body without trailers from the start of b; used is 0 while more bytes are needed.
func parseChunks(b []byte) (body []byte, used int, err error) {
	for {
		line, _, whole := bytes.Cut(b[used:], lineEnd)
		if !whole {
			return nil, 0, nil
		}
		n, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil {
			return nil, 0, fmt.Errorf("chunk: %.40q", line)
		}
		from := used + len(line) + len(lineEnd)
		used = from + int(n) + len(lineEnd)
		if len(b) < used {
			return nil, 0, nil
		}
		if n == 0 {
			return body, used, nil
		}
		body = append(body, b[from:from+int(n)]...)
	}
}
