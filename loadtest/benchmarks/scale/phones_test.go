package scale

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// phonesOf is set in a process that is the phones of many drivers: the address of their instance.
const phonesOf = "FIRSTTAP_TEST_PHONES"

const openers = 8 // of streams, at the same time

// bePhones opens a stream for each token that it reads. It prints a line when all are open, and one for each offer that all have got: when
// each of them got it, in microseconds since 1970.
func bePhones(address string, in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	tokens := strings.Fields(string(text))
	streams := make([]*bufio.Reader, len(tokens))
	failures := make([]error, openers)
	var all sync.WaitGroup
	for first := range openers {
		all.Go(func() {
			for k := first; k < len(tokens) && failures[first] == nil; k += openers {
				streams[k], failures[first] = openStream(address, tokens[k])
			}
		})
	}
	all.Wait()
	if i := slices.IndexFunc(failures, func(err error) bool { return err != nil }); i >= 0 {
		return failures[i]
	}
	fmt.Fprintln(out)
	at := make([]time.Time, len(streams))
	for {
		for k, stream := range streams {
			all.Go(func() { at[k] = awaitOffer(stream) })
		}
		all.Wait()
		var line strings.Builder
		for _, t := range at {
			if t.IsZero() {
				return io.ErrUnexpectedEOF
			}
			fmt.Fprint(&line, t.UnixMicro(), " ")
		}
		fmt.Fprintln(out, line.String())
	}
}

func openStream(address, token string) (*bufio.Reader, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token)
	lines := bufio.NewReaderSize(conn, 512)
	status, err := lines.ReadString('\n')
	if err != nil || !strings.Contains(status, " 200 ") {
		conn.Close()
		return nil, fmt.Errorf("a stream does not open: %q, %w", status, err)
	}
	return lines, nil
}

// awaitOffer returns when the next offer arrived, the zero time if the stream ended before.
func awaitOffer(stream *bufio.Reader) time.Time {
	for {
		line, err := stream.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return time.Time{}
		}
		if strings.HasPrefix(string(line), "event: dispatch.opened") {
			return time.Now()
		}
	}
}

// runPhones is the whole of such a process. It returns the exit code.
func runPhones(address string) int {
	if err := bePhones(address, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "phones:", err)
	}
	return 1
}
