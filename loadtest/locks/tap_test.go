package locks

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tap passes connections to a server and counts the clients' commands. Calls inside a script do not count.
type tap struct {
	net.Listener
	target   string
	next     func(in *bufio.Reader) (counts bool, err error) // reads one request
	commands *atomic.Int64
	running  sync.WaitGroup
}

// startTap starts a tap to the server at target, until the test ends, and returns its address.
func startTap(t *testing.T, target string, next func(*bufio.Reader) (bool, error), commands *atomic.Int64) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Listener: listener, target: target, next: next, commands: commands}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.running.Wait()
	})
	return listener.Addr().String()
}

// tapped is s through taps that count into the returned number.
func tapped(t *testing.T, s site) (site, *atomic.Int64) {
	t.Helper()
	var commands atomic.Int64
	database := s.mysql.Addr
	return s.via(func(addr string) string {
		if addr == database {
			return startTap(t, addr, mysqlRequest, &commands)
		}
		return startTap(t, addr, redisRequest, &commands)
	}), &commands
}

func (p *tap) accept() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve ends when the client hangs up, which a test's clients do before its taps end.
func (p *tap) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.running.Go(func() {
		_, _ = io.Copy(client, server) // ends with either connection
		client.Close()
	})
	in := bufio.NewReader(io.TeeReader(client, server))
	for {
		counts, err := p.next(in)
		if err != nil {
			return
		}
		if counts {
			p.commands.Add(1)
		}
	}
}

// redisRequest reads a command: an array of strings.
func redisRequest(in *bufio.Reader) (bool, error) {
	words, err := redisLength(in)
	for range words {
		var n int
		if n, err = redisLength(in); err == nil {
			_, err = in.Discard(n + len("\r\n"))
		}
		if err != nil {
			break
		}
	}
	return true, err
}

func redisLength(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// mysqlRequest reads a packet. Packets with sequence number 0 are commands; others belong to the login.
func mysqlRequest(in *bufio.Reader) (bool, error) {
	var header [4]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return false, err
	}
	sequence := header[3]
	header[3] = 0
	_, err := in.Discard(int(binary.LittleEndian.Uint32(header[:])))
	return sequence == 0, err
}

// settled returns the count once it has not changed for a while: some ways send commands after they have returned.
func settled(commands *atomic.Int64) int64 {
	const quiet = 10 * time.Millisecond
	for {
		before := commands.Load()
		<-time.After(quiet)
		if after := commands.Load(); after == before {
			return after
		}
	}
}
