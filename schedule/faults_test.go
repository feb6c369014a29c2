package schedule_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"firsttap/dispatch/cronjob"
	"firsttap/internal/servertest"
	"firsttap/internal/testkit"
	"firsttap/lock"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
	"firsttap/schedule"
)

// proxied returns another Store on the place's database, connected through a proxy.
func (p *place) proxied() (*repository.Store, *servertest.Proxy) {
	p.t.Helper()
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	proxy := servertest.StartProxy(p.t, u.Host)
	return repositorytest.Open(p.t, proxy.URL(p.url), repository.Options{}), proxy
}

// One instance loses the database: its work is canceled, another takes it over, and it goes on when the database is back.
func TestTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*servertest.Proxy, bool){
		"refused": (*servertest.Proxy).Refuse, "swallowed": (*servertest.Proxy).Blackhole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			store, proxy := p.proxied()
			begun := make(chan struct{}, 10)
			cut := firstly(p.untilCanceled)
			jobs := []schedule.Job{{Name: "job", Work: func(ctx context.Context, run cronjob.Run) (string, error) {
				begun <- struct{}{}
				return cut(ctx, run)
			}}}
			a := p.start("a", schedule.Options{Ledger: store.Runs, Jobs: jobs})
			testkit.Await(t, "it begins", begun)
			b := p.start("b", schedule.Options{Jobs: jobs})
			away(proxy, true)
			if cause := testkit.Await(t, "the work is canceled", p.causes); !errors.Is(cause, lock.ErrUnreachable) {
				t.Errorf("the work's context ended with %v", cause)
			}
			testkit.Await(t, "another takes it over", begun)
			runs := p.awaitRuns("job", 1, cronjob.Succeeded)
			if len(runs) != 1 || runs[0].Attempt < 2 || by(runs[0].Owner) != "b" {
				t.Errorf("the runs are %+v", runs)
			}
			b.stop()
			b.request("job")
			away(proxy, false)
			if runs := p.awaitRuns("job", 2, cronjob.Succeeded); by(runs[1].Owner) != "a" {
				t.Errorf("the runs are %+v", runs)
			}
			a.stop()
		})
	}
}
