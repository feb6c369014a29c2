package servertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ask sends one command to the Redis at addr, on a connection of its own, and returns what the answer says: the parts of
// an array are lines, and nil is an empty one. An answer that is an error, inside an array too, is the error.
func ask(ctx context.Context, addr string, words ...string) (string, error) {
	const patience = time.Second
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	var command strings.Builder
	fmt.Fprintf(&command, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, command.String()); err != nil {
		return "", err
	}
	answer, err := readAnswer(bufio.NewReader(conn))
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(words, " "), err)
	}
	return answer, nil
}

func readAnswer(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", errors.New(rest)
	case '$', '*':
	default:
		return rest, nil
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 {
		return "", err
	}
	if kind == '$' {
		text := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(in, text)
		return string(text[:n]), err
	}
	parts := make([]string, n)
	for i := range parts {
		if parts[i], err = readAnswer(in); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, "\n"), nil
}

// until calls check until it returns nil, or for as long as a server has to become ready.
func until(check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", readyWithin, err)
		case <-tick.C:
		}
	}
}

// has returns an error unless the answer to the command has a line that is, or a field that is, want.
func has(ctx context.Context, addr, want string, words ...string) error {
	answer, err := ask(ctx, addr, words...)
	if err != nil {
		return err
	}
	if !strings.Contains("\n"+answer, want) {
		return fmt.Errorf("%s at %s: %q is not in\n%s", strings.Join(words, " "), addr, want, answer)
	}
	return nil
}
