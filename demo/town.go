package demo

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// demoTown is the drivers, the two that are the visitor's, and the backoffice that makes dispatches for them.
type demoTown struct {
	api  demoAPI
	key  string
	pace int
	seed uint64
	log  *slog.Logger

	visitors [2]demoVisitor
	drivers  []*demoDriver
	office   *demoOffice
}

// demoVisitor is a driver whose phone is the visitor's.
type demoVisitor struct{ letter, token string }

// demoPerson is a driver as they are made.
type demoPerson struct {
	name    string
	regions []string
	class   string
	height  int
	haste   haste // none: the visitor's
}

// demoPeople begin with the visitor's two. Who competes with those has a truck that is not as high: see demoOffice.duel. The
// macros have one of another class, so that a visitor can win at all.
var demoPeople = []demoPerson{
	{"김민준 (A)", []string{"seoul"}, "45m", 48, haste{}},
	{"이서연 (B)", []string{"seoul"}, "45m", 48, haste{}},
	{"박지훈", []string{"seoul"}, "45m", 42, patient},
	{"최수아", []string{"seoul", "incheon"}, "45m", 42, patient},
	{"정도윤", []string{"seoul", "incheon"}, "28m", 28, ordinary},
	{"강하은", []string{"seoul"}, "28m", 28, macro},
	{"조은우", []string{"seoul", "incheon"}, "28m", 28, ordinary},
	{"윤지아", []string{"incheon"}, "16m", 16, ordinary},
	{"장시우", []string{"incheon"}, "16m", 16, macro},
	{"임서윤", []string{"busan"}, "28m", 28, ordinary},
	{"한주원", []string{"busan"}, "28m", 28, ordinary},
	{"오예린", []string{"busan"}, "16m", 16, ordinary},
}

// found makes the drivers with a phone each, and the first dispatches.
func (t *demoTown) found(ctx context.Context) error {
	made := make([]map[string]any, len(demoPeople))
	for i, p := range demoPeople {
		made[i] = map[string]any{
			"name": p.name, "phone": fmt.Sprintf("+82100000%04d", i+1), "regions": p.regions, "vehicle_class": p.class,
			"working_height_m": p.height, "locale": "ko-KR", "on_duty": true,
		}
	}
	var answer struct{ Items []struct{ Token string } }
	err := t.api.call(ctx, "POST", "/v1/admin/drivers/bulk", t.key, map[string]any{"drivers": made, "issue_tokens": true}, &answer)
	if err != nil {
		return err
	}
	if len(answer.Items) != len(demoPeople) {
		return fmt.Errorf("%d drivers were made of %d", len(answer.Items), len(demoPeople))
	}
	for i, p := range demoPeople {
		token := answer.Items[i].Token
		phone := map[string]any{"platform": "android", "push_token": fmt.Sprintf("demo-%d", i+1)}
		if err := t.api.call(ctx, "PUT", "/v1/me/devices/demo", token, phone, nil); err != nil {
			return err
		}
		if p.haste == (haste{}) {
			t.visitors[i] = demoVisitor{letter: string(rune('A' + i)), token: token}
			continue
		}
		d := &demoDriver{agenda: t.agenda(i), api: t.api, token: token, haste: p.haste}
		d.begin()
		t.drivers = append(t.drivers, d)
	}
	t.office = &demoOffice{agenda: t.agenda(len(demoPeople)), api: t.api, key: t.key, hours: map[string]int{}}
	return t.office.begin(ctx)
}

// agenda has a source of chance of its own, as it is used by one goroutine.
func (t *demoTown) agenda(i int) agenda {
	return agenda{pace: t.pace, chance: rand.New(rand.NewPCG(t.seed, uint64(i))), log: t.log}
}

// run returns when everybody has gone home.
func (t *demoTown) run(ctx context.Context) {
	var people sync.WaitGroup
	defer people.Wait()
	people.Go(func() { t.office.keep(ctx) })
	for _, d := range t.drivers {
		people.Go(func() { d.keep(ctx) })
	}
}

// hour is when the n-th job for a class begins: no two of a class overlap, so that whoever has won one may win the next. It
// begins again after a season.
func hour(now time.Time, n int) time.Time {
	const perDay, season = 6, 90
	korea := time.FixedZone("KST", 9*60*60)
	year, month, day := now.In(korea).Date()
	return time.Date(year, month, day+1+n/perDay%season, 7+2*(n%perDay), 0, 0, 0, korea)
}
