package demo

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// town is everybody in the demo: simulated drivers, the visitor's two drivers, and the backoffice.
type town struct {
	api  apiClient
	key  string
	pace int
	seed uint64
	log  *slog.Logger

	visitors [2]visitor
	drivers  []*driver
	office   *office
}

// visitor is a driver whom the visitor plays in the browser.
type visitor struct{ letter, token string }

// profile describes a driver to be created.
type profile struct {
	name     string
	regions  []string
	class    string
	height   int
	reaction reactionTime // zero: the visitor plays this driver
}

// profiles begin with the visitor's two drivers. Their competitors have lower trucks, see office.duel. The bots have trucks of
// other classes, so that a visitor can win.
var profiles = []profile{
	{"김민준 (A)", []string{"seoul"}, "45m", 48, reactionTime{}},
	{"이서연 (B)", []string{"seoul"}, "45m", 48, reactionTime{}},
	{"박지훈", []string{"seoul"}, "45m", 42, patient},
	{"최수아", []string{"seoul", "incheon"}, "45m", 42, patient},
	{"정도윤", []string{"seoul", "incheon"}, "28m", 28, ordinary},
	{"강하은", []string{"seoul"}, "28m", 28, bot},
	{"조은우", []string{"seoul", "incheon"}, "28m", 28, ordinary},
	{"윤지아", []string{"incheon"}, "16m", 16, ordinary},
	{"장시우", []string{"incheon"}, "16m", 16, bot},
	{"임서윤", []string{"busan"}, "28m", 28, ordinary},
	{"한주원", []string{"busan"}, "28m", 28, ordinary},
	{"오예린", []string{"busan"}, "16m", 16, ordinary},
}

// create creates the drivers with a phone each, and the first dispatches.
func (t *town) create(ctx context.Context) error {
	made := make([]map[string]any, len(profiles))
	for i, p := range profiles {
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
	if len(answer.Items) != len(profiles) {
		return fmt.Errorf("%d of %d drivers were created", len(answer.Items), len(profiles))
	}
	for i, p := range profiles {
		token := answer.Items[i].Token
		phone := map[string]any{"platform": "android", "push_token": fmt.Sprintf("demo-%d", i+1)}
		if err := t.api.call(ctx, "PUT", "/v1/me/devices/demo", token, phone, nil); err != nil {
			return err
		}
		if p.reaction == (reactionTime{}) {
			t.visitors[i] = visitor{letter: string(rune('A' + i)), token: token}
			continue
		}
		d := &driver{timetable: t.timetable(i), api: t.api, token: token, reaction: p.reaction}
		d.begin()
		t.drivers = append(t.drivers, d)
	}
	t.office = &office{timetable: t.timetable(len(profiles)), api: t.api, key: t.key, made: map[string]int{}}
	return t.office.begin(ctx)
}

// timetable returns a timetable with its own random source, which only one goroutine may use.
func (t *town) timetable(i int) timetable {
	return timetable{pace: t.pace, random: rand.New(rand.NewPCG(t.seed, uint64(i))), log: t.log}
}

// run simulates everybody until ctx ends.
func (t *town) run(ctx context.Context) {
	var people sync.WaitGroup
	defer people.Wait()
	people.Go(func() { t.office.run(ctx) })
	for _, d := range t.drivers {
		people.Go(func() { d.run(ctx) })
	}
}

// workStart returns when the n-th job for a class begins. Jobs of a class do not overlap, so that the winner of one may win the
// next, until the dates repeat after a season.
func workStart(now time.Time, n int) time.Time {
	const perDay, season = 6, 90
	korea := time.FixedZone("KST", 9*60*60)
	year, month, day := now.In(korea).Date()
	return time.Date(year, month, day+1+n/perDay%season, 7+2*(n%perDay), 0, 0, 0, korea)
}
