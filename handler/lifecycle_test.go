//nolint:forbidigo // its pauses are in bubbles of testing/synctest
package handler

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"firsttap/internal/auth"
	"firsttap/internal/testkit"
	"firsttap/notify/stream"
	"firsttap/repository"
	"firsttap/repository/repositorytest"
)

// TestRandomLifecycles runs random actions of drivers and admins in any order, and compares each result with the model's.
//
// The clock of each run is its own: it stands still while something is done, and moves by what the run draws.
func TestRandomLifecycles(t *testing.T) {
	t.Parallel()
	empty := strings.TrimPrefix(repositorytest.URL(t, "sqlite"), "sqlite://")
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(testkit.Scale(6, 25))); err != nil { // the usual hundred take minutes under -race
			t.Fatal(err)
		}
	}
	tally := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			l := newLife(rt, t, empty)
			l.tally = tally
			tally["runs"]++
			rt.Repeat(map[string]func(*rapid.T){
				"": l.check, "create": l.create, "patch": l.patch, "patch what is not valid": l.badPatch,
				"accept": l.accept, "accept again": l.accept, "withdraw": l.withdraw, "start": l.start, "complete": l.complete,
				"cancel": l.cancel, "reopen": l.reopen, "extend": l.extend, "assign": l.assign, "unassign": l.unassign,
				"duty": l.duty, "time passes": l.pass, "offers end": l.expire,
			})
		})
	})
	if tally["runs"] < 200 {
		return // by chance, one of them may never have been possible
	}
	for _, done := range []string{
		"PATCH", "POST/cancel", "POST/reopen", "POST/extend", "POST/assign", "POST/unassign", "accept", "withdraw", "start", "complete",
	} {
		if tally[done+" 200 "] == 0 {
			t.Errorf("in %d runs no %s was possible: %v", tally["runs"], done, tally)
		}
	}
}

// life is the API and its model.
type life struct {
	*world
	model
	raw   *sql.DB
	began time.Time
	tally map[string]int // the results of each action, over all runs
}

// newLife returns the API on a copy of the empty database, with three drivers and two dispatches.
func newLife(rt *rapid.T, t *testing.T, empty string) *life {
	dir, err := os.MkdirTemp(filepath.Dir(empty), "life")
	noError(rt, err)
	rt.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "life.db")
	copyFile(rt, empty, path)
	log := slog.New(slog.DiscardHandler)
	store, err := repository.Open(context.Background(), "sqlite://"+path, repository.Options{Log: log})
	noError(rt, err)
	rt.Cleanup(func() { store.Close() })
	raw, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	noError(rt, err)
	rt.Cleanup(func() { raw.Close() })
	revocations, err := auth.NewRevocations(context.Background(), store.Drivers, log)
	noError(rt, err)
	api := API{
		Stores: storesOf(store), Keys: auth.NewKeys(store.Keys), Revocations: revocations,
		Tokens:  auth.NewTokens(auth.TokenOptions{Revocations: revocations, Secret: []byte("secret"), Now: time.Now}),
		Streams: stream.NewHub(stream.Options{}), DriverRate: 1e6, AdminRate: 1e6, Now: time.Now, Log: log,
		Jobs: noJobs{},
	}
	api.useStore(store, nil)
	noError(rt, store.Keys.EnsureKey(context.Background(), auth.FirstKey(key)))
	l := &life{world: &world{t: t, api: New(api), store: store}, raw: raw, began: time.Now()}
	for _, regions := range [][]string{{"seoul"}, {"seoul", "busan"}, {"seoul", "busan"}} {
		l.hire(rt, regions)
	}
	l.create(rt)
	l.create(rt)
	return l
}

func copyFile(rt *rapid.T, from, to string) {
	body, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, body, 0o600)
	}
	noError(rt, err)
}

func (l *life) hire(rt *rapid.T, regions []string) {
	body, _ := json.Marshal(map[string]any{"issue_tokens": true, "drivers": []any{map[string]any{
		"name": "Kim", "phone": "+821012345678", "regions": regions, "vehicle_class": "45m", "on_duty": true,
	}}})
	r := l.call("POST", "/v1/admin/drivers/bulk", key, string(body))
	if r.status != 200 {
		rt.Fatalf("hire: %d %s", r.status, r.raw)
	}
	v := items(r)[0]
	l.fleet = append(l.fleet, &modelDriver{caller{v["id"].(string), v["token"].(string)}, regions, true})
}

// tick moves the clock of the bubble, so that the next event is later than the last, and returns the time.
func (l *life) tick() time.Time {
	time.Sleep(time.Millisecond)
	return time.Now()
}

func (l *life) driver(rt *rapid.T) *modelDriver { return rapid.SampledFrom(l.fleet).Draw(rt, "driver") }

// holder returns mostly the driver who has the dispatch, if there is one.
func (l *life) holder(rt *rapid.T, d *modelDispatch) *modelDriver {
	if d.claim != nil && rapid.IntRange(0, 3).Draw(rt, "another's") > 0 {
		return d.claim.driver
	}
	return l.driver(rt)
}

// one returns mostly a dispatch in one of the states, if there is one.
func (l *life) one(rt *rapid.T, states ...string) *modelDispatch {
	choice := slices.DeleteFunc(slices.Clone(l.dispatches), func(d *modelDispatch) bool {
		return !slices.Contains(states, d.status(time.Now()))
	})
	if len(choice) == 0 || rapid.IntRange(0, 4).Draw(rt, "any") == 0 {
		choice = l.dispatches
	}
	return choice[rapid.IntRange(0, len(choice)-1).Draw(rt, "dispatch")]
}

// version returns mostly the current one.
func (l *life) version(rt *rapid.T, d *modelDispatch) int {
	return d.version + rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 1}).Draw(rt, "version moved by")
}

func (l *life) minutes(rt *rapid.T, what string, choice ...int) time.Duration {
	return time.Duration(rapid.SampledFrom(choice).Draw(rt, what)) * time.Minute
}

// change makes an admin's change, and fails the test unless its result is the model's.
func (l *life) change(rt *rapid.T, method, action string, d *modelDispatch, version int, body map[string]any, want verdict) {
	raw, err := json.Marshal(body)
	noError(rt, err)
	r := l.call(method, "/v1/admin/dispatches/"+d.id+action, key, string(raw), "If-Match", fmt.Sprintf(`"%d"`, version))
	l.same(rt, method+action+" "+string(raw), r, want)
	l.tally[fmt.Sprint(method, action, " ", want.status, " ", want.code)]++
	if want != fine {
		return
	}
	if etag := fmt.Sprintf(`"%d"`, d.version); r.header.Get("ETag") != etag {
		rt.Fatalf("ETag %s, want %s", r.header.Get("ETag"), etag)
	}
	l.sameDispatch(rt, r.json, d)
}

func (l *life) same(rt *rapid.T, what string, r reply, want verdict) {
	if r.status != want.status || r.code() != want.code {
		rt.Fatalf("%s: %d %s, want %d %s", what, r.status, r.raw, want.status, want.code)
	}
}

// act is a driver's.
func (l *life) act(rt *rapid.T, action string, d *modelDispatch, v *modelDriver, body string, want verdict) {
	l.same(rt, v.id+" "+action+" "+body, l.call("POST", "/v1/dispatches/"+d.id+"/"+action, v.token, body), want)
	l.tally[fmt.Sprint(action, " ", want.status, " ", want.code)]++
}

// terms draws where and when the work is: its hours overlap with others' or not.
func (l *life) terms(rt *rapid.T) modelTerms {
	starts := l.began.Add(time.Duration(rapid.IntRange(1000, 1001).Draw(rt, "hour")) * time.Hour)
	return modelTerms{region: rapid.SampledFrom([]string{"seoul", "seoul", "busan"}).Draw(rt, "region"), starts: starts, ends: starts.Add(time.Hour)}
}

func (l *life) create(rt *rapid.T) {
	if len(l.dispatches) >= 4 {
		rt.Skip("enough")
	}
	now, terms := l.tick(), l.terms(rt)
	d := &modelDispatch{modelTerms: terms, opens: now, expires: now.Add(10 * time.Minute), written: "PENDING", round: 1, version: 1}
	body := map[string]any{
		"region": d.region, "vehicle_class": "45m", "site_address": "1 Sejong-daero", "work_starts_at": d.starts, "work_ends_at": d.ends,
		"fee": map[string]any{"amount": 0, "currency": "KRW"},
	}
	if rapid.Bool().Draw(rt, "later") {
		d.opens, d.expires = now.Add(5*time.Minute), now.Add(15*time.Minute)
		body["opens_at"] = d.opens
	}
	if rapid.Bool().Draw(rt, "ends") {
		d.expires = now.Add(l.minutes(rt, "until", 6, 20))
		body["expires_at"] = d.expires
	}
	raw, _ := json.Marshal(body)
	r := l.call("POST", "/v1/admin/dispatches", key, string(raw))
	l.same(rt, "create "+string(raw), r, verdict{201, ""})
	d.id = r.json["id"].(string)
	d.happens("created", "key_first", "")
	l.dispatches = append(l.dispatches, d)
}

func (l *life) patch(rt *rapid.T) {
	now, d := l.tick(), l.one(rt, "SCHEDULED", "PENDING")
	terms, opens, expires, body := d.modelTerms, d.opens, d.expires, map[string]any{}
	for _, field := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"region", "work_starts_at", "fee", "note", "no note", "site", "no site", "opens_at", "expires_at", "what was shown",
	}), 0, 3, rapid.ID[string]).Draw(rt, "fields") {
		switch field {
		case "region":
			terms.region = l.terms(rt).region
			body["region"] = terms.region
		case "work_starts_at":
			drawn := l.terms(rt)
			terms.starts, terms.ends = drawn.starts, drawn.ends
			body["work_starts_at"], body["work_ends_at"] = terms.starts, terms.ends
		case "fee":
			terms.amount = rapid.IntRange(0, 2).Draw(rt, "amount")
			body["fee"] = map[string]any{"amount": terms.amount, "currency": "KRW"}
		case "note":
			terms.note = rapid.SampledFrom([]string{"gate 1", "gate 2"}).Draw(rt, "note")
			body["note"] = terms.note
		case "no note":
			terms.note, body["note"] = "", nil
		case "site":
			terms.lat = rapid.SampledFrom([]float64{37.5, 38}).Draw(rt, "lat")
			body["site_lat"], body["site_lng"] = terms.lat, 127
		case "no site":
			terms.lat = 0
			delete(body, "site_lng")
			body["site_lat"] = nil
		case "opens_at":
			opens = now.Add(l.minutes(rt, "opens", -1, 3, 8))
			body["opens_at"] = opens
		case "expires_at":
			expires = now.Add(l.minutes(rt, "expires", -1, 2, 12))
			body["expires_at"] = expires
		case "what was shown":
			if _, drawn := body["opens_at"]; !drawn {
				body["opens_at"] = d.opens
			}
			body["vehicle_class"], body["min_working_height_m"] = "45m", nil
		}
	}
	version := l.version(rt, d)
	want := l.model.patch(d, version, terms, opens, expires, now)
	l.change(rt, "PATCH", "", d, version, body, want)
}

func (l *life) badPatch(rt *rapid.T) {
	d := l.one(rt)
	body := rapid.SampledFrom([]map[string]any{
		{"region": nil}, {"note": 1}, {"fee": map[string]any{"amount": 1}}, {"status": "PENDING"}, {"work_ends_at": l.began}, {"note": "x", "driver_id": "x"},
	}).Draw(rt, "body")
	l.tick()
	l.change(rt, "PATCH", "", d, d.version, body, verdict{422, "VALIDATION_FAILED"})
}

func (l *life) accept(rt *rapid.T) {
	now, d, v := l.tick(), l.one(rt, "PENDING", "ACCEPTED"), l.driver(rt)
	round := rapid.SampledFrom([]int{d.round, d.round, d.round, d.round - 1, d.round + 1, 0}).Draw(rt, "round")
	body := ""
	if round > 0 {
		body = fmt.Sprintf(`{"round":%d}`, round)
	}
	l.act(rt, "accept", d, v, body, l.model.accept(d, v, round, now))
}

func (l *life) withdraw(rt *rapid.T) {
	now, d := l.tick(), l.one(rt, "ACCEPTED")
	v := l.holder(rt, d)
	round := rapid.SampledFrom([]int{0, d.round, d.round, d.round - 1}).Draw(rt, "round")
	body := "{}"
	if round > 0 {
		body = fmt.Sprintf(`{"round":%d}`, round)
	}
	l.act(rt, "withdraw", d, v, body, l.model.withdraw(d, v, round, now))
}

func (l *life) start(rt *rapid.T) {
	l.tick()
	d := l.one(rt, "ACCEPTED")
	v := l.holder(rt, d)
	l.act(rt, "start", d, v, "", l.advance(d, v, "ACCEPTED", "IN_PROGRESS", "started"))
}

func (l *life) complete(rt *rapid.T) {
	l.tick()
	d := l.one(rt, "IN_PROGRESS")
	v := l.holder(rt, d)
	l.act(rt, "complete", d, v, "", l.advance(d, v, "IN_PROGRESS", "COMPLETED", "completed"))
}

func (l *life) cancel(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "rarely") > 0 {
		rt.Skip("there would be nothing left")
	}
	now, d := l.tick(), l.one(rt, "SCHEDULED", "PENDING", "ACCEPTED", "IN_PROGRESS")
	version := l.version(rt, d)
	l.change(rt, "POST", "/cancel", d, version, map[string]any{"reason_code": "RAIN"}, l.model.cancel(d, version, now))
}

func (l *life) reopen(rt *rapid.T) {
	now, d := l.tick(), l.one(rt, "EXPIRED")
	var opens, expires *time.Time
	body := map[string]any{}
	if rapid.Bool().Draw(rt, "opens") {
		opens = new(now.Add(l.minutes(rt, "opens at", -1, 0, 5)))
		body["opens_at"] = opens
	}
	if rapid.Bool().Draw(rt, "expires") {
		expires = new(now.Add(l.minutes(rt, "expires at", 0, 3, 7)))
		body["expires_at"] = expires
	}
	version := l.version(rt, d)
	l.change(rt, "POST", "/reopen", d, version, body, l.model.reopen(d, version, opens, expires, now))
}

func (l *life) extend(rt *rapid.T) {
	now, d := l.tick(), l.one(rt, "SCHEDULED", "PENDING")
	until := d.expires.Add(l.minutes(rt, "longer by", -1, 0, 1, 9))
	version := l.version(rt, d)
	l.change(rt, "POST", "/extend", d, version, map[string]any{"expires_at": until}, l.model.extend(d, version, until, now))
}

func (l *life) assign(rt *rapid.T) {
	now, d, v := l.tick(), l.one(rt, "SCHEDULED", "PENDING"), l.driver(rt)
	version := l.version(rt, d)
	l.change(rt, "POST", "/assign", d, version, map[string]any{"driver_id": v.id}, l.model.assign(d, version, v, now))
}

func (l *life) unassign(rt *rapid.T) {
	now, d := l.tick(), l.one(rt, "ACCEPTED")
	version := l.version(rt, d)
	l.change(rt, "POST", "/unassign", d, version, map[string]any{"reason_code": "ILL"}, l.model.unassign(d, version, now))
}

func (l *life) duty(rt *rapid.T) {
	l.tick()
	v := l.driver(rt)
	v.onDuty = rapid.Bool().Draw(rt, "on duty")
	l.same(rt, "duty", l.call("PUT", "/v1/me/duty", v.token, fmt.Sprintf(`{"on_duty":%v}`, v.onDuty)), fine)
}

// pass lets minutes of the bubble pass.
func (l *life) pass(rt *rapid.T) { time.Sleep(l.minutes(rt, "time", 1, 4, 7, 11)) }

func (l *life) expire(rt *rapid.T) {
	now := l.tick()
	_, err := l.store.Due.ExpireOffers(context.Background(), 100)
	noError(rt, err)
	l.model.expire(now)
}
