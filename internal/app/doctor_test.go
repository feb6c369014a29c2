package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/systemtest"
)

// TestDoctorKnowsTheRedisCommands: what an instance sends to Redis is what the doctor asks the right for.
func TestDoctorKnowsTheRedisCommands(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	settings := []string{"FIRSTTAP_REDIS_URL=" + server.URL(), "FIRSTTAP_DATABASE_URL=sqlite://" + t.TempDir() + "/my.db", "FIRSTTAP_RELAY=leader"}
	i := systemtest.Start(t, settings...)
	drivers := systemtest.MakeDrivers(t, i, 3)
	id := systemtest.MakeDispatch(t, i)
	systemtest.Together(3, func(k int) systemtest.Response { return systemtest.Accept(i, id, drivers[k], 1) })
	var pairs []string
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		pairs = append(pairs, name, value)
	}
	if out, err := commandOf(t, testkit.Settings(pairs...), "lock", "ls"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	known := map[string]bool{}
	for _, use := range slices.Concat(redisUses("firsttap"), redisLockUses("firsttap")) {
		known[use[0]] = true
	}
	info, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sent := info["Commandstats"]
	for name := range sent {
		name = strings.TrimPrefix(name, "cmdstat_")
		if !known[name] && name != "hello" && name != "quit" && !strings.HasPrefix(name, "client|") {
			t.Errorf("an instance sends %s, for which the doctor does not ask", name)
		}
	}
	for _, must := range []string{"set", "xadd", "scan", "evalsha", "psetex", "incr"} {
		if sent["cmdstat_"+must] == "" {
			t.Errorf("no instance has sent %s: not everything was looked at", must)
		}
	}
}

func TestDoctorCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	env := testkit.Settings("FIRSTTAP_ADDR", "127.0.0.1:0", "FIRSTTAP_OPS_ADDR", "")
	if out, err := commandOf(t, env, "doctor", "-h"); err != nil || !strings.Contains(out, "-json") {
		t.Errorf("-h: %q, %v", out, err)
	}
	for _, args := range [][]string{{"doctor", "now"}, {"doctor", "--nonsense"}} {
		if _, err := commandOf(t, env, args...); err == nil {
			t.Errorf("%v: accepted", args)
		}
	}
	if out, err := commandOf(t, env, "doctor"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	testkit.MustHoldFiles(t, ".")
}
