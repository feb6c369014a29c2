package redisclient

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/doctor"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// What keeps the examination from Redis is said with what to do next, and what depends on it is skipped.
func TestExamineWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	for user, rules := range map[string][]any{"silent": {"-ping"}, "mute": {"-eval"}, "blind": {"-info"}, "keyless": {"resetkeys", "~other:*"}} {
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">a-password", "+@all", "~*", "&*"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	with := func(user string) string { return "redis://" + user + ":a-password@" + server.Addr() }
	free, uses := testkit.FreeAddress(t), []Use{{"set", "x", "1"}}
	for url, want := range map[string]struct{ check, found, next string }{
		"http://h":                           {"redis.connection", "a Redis URL is", "correct FIRSTTAP_REDIS_URL"},
		"redis://" + free:                    {"redis.connection", free, "Redis"},
		"redis+cluster://" + server.Addr():   {"redis.connection", "cluster support disabled", "want redis://host:port"},
		with("nobody"):                       {"redis.connection", "WRONGPASS", "correct the user and the password"},
		with("silent"):                       {"redis.connection", "NOPERM", "+ping"},
		with("mute"):                         {"redis.scripts", "no script runs", "SETUSER ... +eval"},
		with("keyless"):                      {"redis.writes", "NOPERM", "~*"},
		"redis+sentinel://" + free + "/main": {"redis.sentinels", "0 of 1 sentinels", "start the sentinels"},
		"redis+sentinel://" + server.Addr() + "/main": {"redis.sentinels", "0 of 1 sentinels", "check the master's name"},
	} {
		r := doctor.NewReport(doctor.Options{Each: 5 * time.Second})
		Examine(t.Context(), r, url, Installation{Namespace: "firsttap"}, uses, time.Second)
		lines := map[string]doctor.Line{}
		for _, line := range r.Lines {
			lines[line.Check] = line
		}
		line := lines[want.check]
		if line.Status != doctor.Fails || !strings.Contains(line.Found, want.found) || !strings.Contains(line.Next, want.next) {
			t.Errorf("%s: %+v", url, line)
		}
		if skipped := lines["redis.latency"].Status == doctor.Skipped; skipped != (lines["redis.connection"].Status == doctor.Fails) {
			t.Errorf("%s: %+v", url, r.Lines)
		}
	}
	for url, found := range map[string]string{"http://h": "a Redis URL is", "redis://" + free: free, with("silent"): "NOPERM", with("mute"): "no script runs"} {
		if f := ExamineServer(t.Context(), url, uses); f.Status != doctor.Fails || !strings.Contains(f.Found, found) || strings.Contains(f.Next, "FIRSTTAP_REDIS_URL") {
			t.Errorf("%s: %+v", url, f)
		}
	}
	if f := ExamineServer(t.Context(), with("blind"), uses); f.Status != doctor.Warning || !strings.Contains(f.Next, "+info") {
		t.Errorf("a server that hides what it is: %+v", f)
	}
	if f := ExamineServer(t.Context(), "redis://"+server.Addr(), uses); f.Status != doctor.OK {
		t.Errorf("a good server: %+v", f)
	}
	r := doctor.NewReport(doctor.Options{Each: 5 * time.Second})
	if Examine(t.Context(), r, "redis://"+server.Addr(), Installation{Namespace: "firsttap"}, uses, time.Nanosecond); r.Lines[len(r.Lines)-1].Status != doctor.Fails {
		t.Errorf("no tap waits for so slow a server: %+v", r.Lines)
	}
}

// What to do follows from the server's own words.
func TestAfterError(t *testing.T) {
	for text, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'cluster|slots' command":          "SETUSER ... +cluster|slots",
		"NOPERM User u has no permissions to run the 'evalsha' command":                   "SETUSER ... +evalsha",
		"NOPERM this user has no permissions to access one of the keys used as arguments": "SETUSER ... ~*",
		"NOPERM this user has no permissions to access one of the channels used":          "SETUSER ... &*",
		"READONLY You can't write against a read only replica.":                           "to the master",
		"OOM command not allowed when used memory > 'maxmemory'.":                         "raise maxmemory",
		"MISCONF Redis is configured to save RDB snapshots, but it's unable to persist":   "disk",
		"NOREPLICAS Not enough good replicas to write.":                                   "min-replicas-to-write",
		"CLUSTERDOWN Hash slot not served":                                                "--cluster check",
		"NOAUTH Authentication required.":                                                 "the password",
	} {
		if next := afterError(errors.New(text)); !strings.Contains(next, want) {
			t.Errorf("%s: %s", text, next)
		}
	}
}

// Sentinels with a password are asked with it, by clients and by the examination, which names the option where it is missing.
func TestSentinelsWithAPassword(t *testing.T) {
	t.Parallel()
	group := servertest.StartRedisSentinel(t)
	for _, s := range group.Sentinels {
		admin := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { admin.Close() })
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">p&q").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for url, want := range map[string]struct{ found, next string }{
		group.URL():                              {"NOAUTH", "?sentinel_password="},
		group.URL() + "?sentinel_password=wrong": {"WRONGPASS", "?sentinel_password="},
		group.URL() + "?sentinel_password=p%26q": {"3 of 3 sentinels see a quorum", ""},
		group.URL() + "?sentinel_username=default&sentinel_password=p%26q": {"3 of 3 sentinels see a quorum", ""},
	} {
		client, err := Dial(url, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		err = client.Ping(t.Context()).Err()
		client.Close()
		opts, _ := parseURL(url)
		f := examineSentinels(t.Context(), opts)
		if !strings.Contains(f.Found, want.found) || !strings.Contains(f.Next, want.next) {
			t.Errorf("%s: %+v", url, f)
		}
		if good := want.next == ""; good != (err == nil) || good != (f.Status == doctor.OK) {
			t.Errorf("%s: a command: %v; %+v", url, err, f)
		}
	}
}

// A server that closes idle connections, also with TLS where nobody notices it, is not away for the next command.
func TestIdleConnectionsAreClosedHere(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	client, err := Dial(server.URL(), testkit.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	single, ok := client.(*redis.Client)
	if !ok {
		t.Fatalf("%T", client)
	}
	const common = 5 * time.Second // the shortest timeout of a server or proxy that is in use
	if idle := single.Options().ConnMaxIdleTime; idle >= common {
		t.Errorf("a connection may be idle for %s", idle)
	}
}
