package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer connects to the server at addr.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// answerWithin is how long a server is waited for: longer than a busy machine delays an answer.
const answerWithin = 20 * time.Second

func plainText(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: answerWithin}).DialContext(ctx, "tcp", addr)
}

// ask sends one command to the Redis at addr, on a connection of its own, and returns the answer as text: an array has a
// line for each item, and nil is empty.
func ask(ctx context.Context, addr string, words ...string) (string, error) {
	return askOver(ctx, plainText, addr, words...)
}

func askOver(ctx context.Context, dial dialer, addr string, words ...string) (string, error) {
	conn, err := dial(ctx, addr) // not by go-redis, which logs failures
	if err != nil {
		return "", err
	}
	client := redis.NewClient(&redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, ReadTimeout: answerWithin, WriteTimeout: answerWithin,
	})
	defer conn.Close()
	defer client.Close()
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	answer, err := client.Do(ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("%s: %w", strings.Join(words, " "), err)
	}
	return text(answer), nil
}

func text(answer any) string {
	switch answer := answer.(type) {
	case nil:
		return ""
	case []any:
		lines := make([]string, len(answer))
		for i, item := range answer {
			lines[i] = text(item)
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprint(answer)
}

// has returns an error unless the answer to the command contains want. The answer's first line follows a line's end too.
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
