package redisclient

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"firsttap/doctor"
	"firsttap/servertest"
	"firsttap/testkit"
)

// What keeps the examination from Redis is said with what to do next, and what depends on it is skipped.
func TestExamineWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	for user, rules := range map[string][]any{"silent": {"-ping"}, "mute": {"-eval"}, "blind": {"-info"}} {
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">a-password", "+@all", "~*", "&*"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	with := func(user string) string { return "redis://" + user + ":a-password@" + server.Addr() }
	free, uses := testkit.FreeAddress(t), []Use{{"SET", "x", "1"}}
	for url, want := range map[string]struct{ check, found, next string }{
		"http://h":                           {"redis.connection", "a Redis URL is", "correct FIRSTTAP_REDIS_URL"},
		"redis://" + free:                    {"redis.connection", free, "Redis"},
		"redis+cluster://" + server.Addr():   {"redis.connection", "cluster support disabled", "want redis://host:port"},
		with("nobody"):                       {"redis.connection", "WRONGPASS", "correct the user and the password"},
		with("silent"):                       {"redis.connection", "NOPERM", "+ping"},
		with("mute"):                         {"redis.scripts", "no script runs", "+eval"},
		"redis+sentinel://" + free + "/main": {"redis.sentinels", "0 of 1 sentinels", "start the sentinels"},
		"redis+sentinel://" + server.Addr() + "/main": {"redis.sentinels", "0 of 1 sentinels", "check the master's name"},
	} {
		r := doctor.NewReport(doctor.Options{Each: 5 * time.Second})
		Examine(t.Context(), r, url, uses, time.Second)
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
	if Examine(t.Context(), r, "redis://"+server.Addr(), uses, time.Nanosecond); r.Lines[len(r.Lines)-1].Status != doctor.Fails {
		t.Errorf("no tap waits for so slow a server: %+v", r.Lines)
	}
}
