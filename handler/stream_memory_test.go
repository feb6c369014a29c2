package handler

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"firsttap/dispatch"
	"firsttap/notify/stream"
)

// maxUnderRace is how many bytes of heap and stacks an idle stream may take in the tests with the race detector, which needs larger stacks.
const maxUnderRace = 16_500

// TestMemoryOfAStream opens a thousand streams; ten thousand are in TestSoakTenThousandStreams.
func TestMemoryOfAStream(t *testing.T) { openMany(t, 1000, maxUnderRace) }

// clientsOf is set in the process that is the drivers: the memory of a client must not count, and one process may not have all the files
// that both sides need.
const clientsOf = "FIRSTTAP_TEST_STREAM_CLIENTS"

// crowd is what many streams at once have cost.
type crowd struct {
	each           memory
	opening, heard time.Duration
	cpu            time.Duration // of this process for an event to one stream
}

// openMany opens n streams on one instance, over real connections, sends an event to all, and checks the memory of each. It is the
// clients itself in the process that it starts.
func openMany(t *testing.T, n int, most int64, server ...func(*http.Server)) (c crowd) {
	if addr := os.Getenv(clientsOf); addr != "" {
		beClients(t, addr)
		return c
	}
	l := newLive(t, stream.Options{}, server...)
	var tokens strings.Builder
	for range n / 1000 {
		for _, d := range l.drivers(1000) {
			fmt.Fprintln(&tokens, d.token)
		}
	}
	debug.FreeOSMemory() // what an earlier crowd had must not count as room for this one
	before := measure(t)
	clients := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=120s")
	clients.Env = append(os.Environ(), clientsOf+"="+strings.TrimPrefix(l.url, "http://"))
	clients.Stdin, clients.Stderr = strings.NewReader(tokens.String()), os.Stderr
	out, err := clients.StdoutPipe()
	noError(t, err)
	noError(t, clients.Start())
	says := bufio.NewScanner(out)
	said := func(what string) string {
		for says.Scan() {
			if rest, ok := strings.CutPrefix(says.Text(), what+" "); ok {
				return rest
			}
			t.Log(says.Text())
		}
		t.Fatalf("the clients never said %q", what)
		return ""
	}
	began := time.Now()
	if got := said("OPEN"); got != strconv.Itoa(n) {
		t.Fatalf("%s streams", got)
	}
	c.opening = time.Since(began)
	idle := measure(t)
	published, worked := time.Now(), cpuTime(t)
	l.tells(dispatch.EventOpened, "")
	heard, at, _ := strings.Cut(said("HEARD"), " ")
	if heard != strconv.Itoa(n) {
		t.Errorf("%s of %d have heard it", heard, n)
	}
	c.cpu = (cpuTime(t) - worked) / time.Duration(n)
	last, err := strconv.ParseInt(at, 10, 64)
	noError(t, err)
	c.heard = time.Unix(0, last).Sub(published)
	if err := clients.Wait(); err != nil {
		t.Error(err)
	}
	streams := int64(n)
	c.each = memory{(idle.heap - before.heap) / streams, (idle.stack - before.stack) / streams, (idle.resident - before.resident) / streams}
	if c.each.heap+c.each.stack > most {
		t.Errorf("a stream takes %d bytes of heap and %d of stacks, more than %d together", c.each.heap, c.each.stack, most)
	}
	return c
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	noError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is in bytes.
type memory struct{ heap, stack, resident int64 }

func measure(t *testing.T) memory {
	t.Helper()
	runtime.GC()
	runtime.GC() // what pools had
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	// Where there is no such file, the difference is 0.
	statm, _ := os.ReadFile("/proc/self/statm")
	var size, pages int64
	_, _ = fmt.Sscan(string(statm), &size, &pages)
	return memory{heap: int64(m.HeapAlloc), stack: int64(m.StackInuse), resident: pages * int64(os.Getpagesize())}
}

// beClients opens a stream for each token on stdin. It prints OPEN when all streams have started, and HEARD when all have received
// an event or one has ended.
func beClients(t *testing.T, addr string) {
	raw, err := io.ReadAll(os.Stdin)
	noError(t, err)
	tokens := strings.Fields(string(raw))
	opened, heard := make(chan bool), make(chan bool)
	next := make(chan string)
	var all sync.WaitGroup
	for range 64 { // at once
		all.Go(func() {
			for token := range next {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					opened <- false
					continue
				}
				fmt.Fprintf(conn, "GET /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token)
				r := bufio.NewReaderSize(conn, 512)
				opened <- lineOf(r, "retry: ")
				all.Go(func() { defer conn.Close(); heard <- lineOf(r, "event: dispatch.opened") })
			}
		})
	}
	go func() {
		defer close(next)
		for _, token := range tokens {
			next <- token
		}
	}()
	fmt.Println("OPEN", trues(opened, len(tokens)))
	fmt.Println("HEARD", trues(heard, len(tokens)), time.Now().UnixNano())
	all.Wait()
}

func trues(c <-chan bool, n int) (sum int) {
	for range n {
		if <-c {
			sum++
		}
	}
	return sum
}

// lineOf reads up to a line that begins with prefix, false if there is none.
func lineOf(r *bufio.Reader, prefix string) bool {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return false
		}
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
}
