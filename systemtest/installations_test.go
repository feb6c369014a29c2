package systemtest

import (
	"strings"
	"testing"

	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
)

// Two installations have one Redis and one server of the database, and two instances each. In each of them 50 slots of each job run, each of
// them once, and an offer ends once. A live stream shows what is committed in its own installation, and nothing of the other.
func TestTwoInstallations(t *testing.T) {
	t.Parallel()
	slots := testkit.Scale(5, 50)
	redis := "FIRSTTAP_REDIS_URL=" + servertest.StartRedis(t).URL()
	type installation struct {
		a, b   *Instance
		db     *Database
		stream *openedStream
	}
	var all []*installation
	for _, namespace := range []string{"acme", "beta"} {
		url := mariaDB(t)
		settings := []string{
			"FIRSTTAP_DATABASE_URL=" + url, redis, "FIRSTTAP_NAMESPACE=" + namespace,
			"FIRSTTAP_JOBS=nightly=@every 1s;supply=@every 1s,atLeast=0s,atMost=5s;retention=@every 1s",
		}
		i := &installation{a: Start(t, settings...), b: Start(t, settings...), db: OpenDatabase(t, url)}
		i.stream = openStream(t, i.a, AdminKey, "")
		all = append(all, i)
	}
	for _, i := range all {
		ends := MakeDispatchWith(t, i.b, DispatchOptions{Region: "nowhere"})
		i.db.expire(ends, 0)
		testkit.Within(t, 3*testkit.Patience, "the offer ends", i.db.expired(ends))
	}
	for _, i := range all {
		for _, job := range []string{"nightly", "supply", "retention"} {
			testkit.Within(t, 5*testkit.Patience, "the slots of "+job, func() bool {
				return i.db.Count("job_runs WHERE job = ? AND status = 'SUCCEEDED'", job) >= slots
			})
			testkit.Equal(t, "runs of "+job+" that were begun again", 0, i.db.Count("job_runs WHERE job = ? AND attempt > 1", job))
		}
	}
	made := map[*installation][]string{}
	for range 2 { // so that each one's second is later than the other's first
		for _, i := range all {
			made[i] = append(made[i], MakeDispatch(t, i.b))
		}
	}
	for k, i := range all {
		mine, others := made[i], made[all[1-k]]
		for line := range i.stream.lines {
			if strings.Contains(line, others[0]) || strings.Contains(line, others[1]) {
				t.Errorf("an event of the other installation: %s", line)
			}
			if strings.Contains(line, mine[1]) {
				break
			}
		}
	}
}
