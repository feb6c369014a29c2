package demo

import (
	"context"
	"time"
)

const (
	// openDispatches bounds how many dispatches wait for a driver.
	openDispatches = 8
	// openDuels bounds how many of them only the visitor's drivers can take.
	openDuels  = 2
	duelEvery  = 20 * time.Second
	duelWindow = time.Minute
	// duelHeight is more than any other driver's truck of that class reaches.
	duelHeight = 46
)

// office is the backoffice: it creates dispatches.
type office struct {
	timetable
	api   apiClient
	key   string
	made  map[string]int // dispatches created, by class
	duels []string       // the latest, up to openDuels
}

// kind is a kind of dispatch.
type kind struct {
	region, class string
	fee           int // thousands of won
}

var kinds = []kind{
	{"seoul", "45m", 420}, {"seoul", "28m", 270}, {"seoul", "28m", 250}, {"incheon", "28m", 260}, {"incheon", "16m", 170},
	{"incheon", "45m", 450}, {"busan", "28m", 280}, {"busan", "16m", 180},
	{"busan", "58m", 780}, // no driver has one, so no driver sees it
}

var sites = map[string][]string{
	"seoul": {
		"서울특별시 강남구 테헤란로 152", "서울특별시 송파구 올림픽로 300", "서울특별시 영등포구 여의대로 108", "서울특별시 마포구 월드컵북로 396",
		"서울특별시 성동구 왕십리로 222", "서울특별시 중구 세종대로 110",
	},
	"incheon": {"인천광역시 연수구 송도과학로 32", "인천광역시 중구 공항로 272", "인천광역시 남동구 정각로 29", "인천광역시 부평구 부평대로 168"},
	"busan":   {"부산광역시 해운대구 센텀중앙로 79", "부산광역시 부산진구 중앙대로 668", "부산광역시 강서구 녹산산단335로 7", "부산광역시 남구 문현금융로 40"},
}

var notes = []string{
	"외벽 간판 교체. 2번 게이트로 들어오세요.", "5층 창호 교체, 신호수 배치됨.", "가로수 전지 작업. 도착 30분 전에 연락 바랍니다.",
	"유리창 청소. 지하 주차장 진입 불가.", "옥상 실외기 인양.", "",
}

// begin fills the board and schedules the next dispatches.
func (o *office) begin(ctx context.Context) error {
	for i := range openDispatches - openDuels {
		if err := o.create(ctx, kinds[i*len(kinds)/(openDispatches-openDuels)]); err != nil {
			return err
		}
	}
	o.after(o.between(3*time.Second, 8*time.Second), o.arrive)
	return o.duel(ctx)
}

// arrive creates a dispatch of a random kind unless enough are waiting, and schedules the next one.
func (o *office) arrive(ctx context.Context) error {
	o.after(o.between(10*time.Second, 15*time.Second), o.arrive)
	var board struct{ Counts map[string]int }
	if err := o.api.call(ctx, "GET", "/v1/admin/board", o.key, nil, &board); err != nil {
		return err
	}
	waiting := board.Counts["PENDING"] + board.Counts["SCHEDULED"]
	for range min(2, openDispatches-waiting) { // two at a time, to catch up
		if err := o.create(ctx, kinds[o.random.IntN(len(kinds))]); err != nil {
			return err
		}
	}
	return nil
}

// create creates a dispatch of a kind: most are open at once for a few minutes, some open later, some expire soon.
func (o *office) create(ctx context.Context, k kind) error {
	opens := time.Duration(0)
	window := o.between(2*time.Minute, 5*time.Minute)
	switch o.random.IntN(5) {
	case 0:
		opens = o.between(20*time.Second, 90*time.Second)
	case 1:
		window = o.between(25*time.Second, 50*time.Second)
	}
	_, err := o.post(ctx, k, opens, window, nil)
	return err
}

// duel creates a dispatch that only the visitor's two drivers can take, unless enough are waiting.
func (o *office) duel(ctx context.Context) error {
	o.after(duelEvery, o.duel)
	waiting := 0
	for _, id := range o.duels {
		var d struct{ Status string }
		if err := o.api.call(ctx, "GET", "/v1/admin/dispatches/"+id, o.key, nil, &d); err != nil {
			return err
		}
		if d.Status == "PENDING" {
			waiting++
		}
	}
	if waiting >= openDuels {
		return nil
	}
	id, err := o.post(ctx, kind{"seoul", "45m", 520}, 0, duelWindow, duelHeight)
	if err != nil {
		return err
	}
	o.duels = append(o.duels, id)
	o.duels = o.duels[max(0, len(o.duels)-openDuels):]
	return nil
}

func (o *office) post(ctx context.Context, k kind, opens, window time.Duration, height any) (id string, err error) {
	now := time.Now()
	starts := workStart(now, o.made[k.class])
	o.made[k.class]++
	sites := sites[k.region]
	terms := map[string]any{
		"region": k.region, "vehicle_class": k.class, "min_working_height_m": height, "site_address": sites[o.random.IntN(len(sites))],
		"work_starts_at": starts, "work_ends_at": starts.Add(2 * time.Hour), "expires_at": now.Add(opens + window),
		"fee": map[string]any{"amount": (k.fee + 10*o.random.IntN(12)) * 1000, "currency": "KRW"},
	}
	if note := notes[o.random.IntN(len(notes))]; note != "" {
		terms["note"] = note
	}
	if opens > 0 {
		terms["opens_at"] = now.Add(opens)
	}
	var made struct{ ID string }
	err = o.api.call(ctx, "POST", "/v1/admin/dispatches", o.key, terms, &made)
	return made.ID, err
}
