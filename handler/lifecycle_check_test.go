package handler

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// check fails the test unless everything is as in the model.
func (l *life) check(rt *rapid.T) {
	for _, d := range l.dispatches {
		r := l.call("GET", "/v1/admin/dispatches/"+d.id, key, "")
		l.same(rt, "read", r, fine)
		l.sameDispatch(rt, r.json, d)
		l.sameEvents(rt, d)
		l.sameClaims(rt, d)
	}
	l.sameOffers(rt)
	l.soundRows(rt)
}

func (l *life) sameDispatch(rt *rapid.T, got map[string]any, d *modelDispatch) {
	want := map[string]any{
		"status": d.status(time.Now()), "round": d.round, "version": d.version, "region": d.region,
		"work_starts_at": shown(d.starts), "work_ends_at": shown(d.ends), "opens_at": shown(d.opens), "expires_at": shown(d.expires),
		"note": any(nil), "site_lat": any(nil), "site_lng": any(nil), "accepted_by": any(nil), "vehicle_class": "45m",
		"min_working_height_m": any(nil), "external_id": any(nil), "site_address": "1 Sejong-daero",
		"fee": map[string]any{"amount": d.amount, "currency": "KRW"},
	}
	if d.note != "" {
		want["note"] = d.note
	}
	if d.lat != 0 {
		want["site_lat"], want["site_lng"] = d.lat, 127
	}
	if d.claim != nil {
		want["accepted_by"] = d.claim.driver.id
	}
	for member, w := range want {
		if fmt.Sprint(got[member]) != fmt.Sprint(w) {
			rt.Fatalf("%s is %v, want %v, of %v", member, got[member], w, got)
		}
	}
	if (got["accepted_at"] != nil) != (d.claim != nil) {
		rt.Fatalf("accepted at %v", got["accepted_at"])
	}
}

func (l *life) sameEvents(rt *rapid.T, d *modelDispatch) {
	var got []string
	at := ""
	for _, e := range slices.Concat(l.pages("/v1/admin/dispatches/"+d.id+"/events?limit=7", key)...) {
		text := func(member, none string) string {
			if e[member] == nil {
				return none
			}
			return fmt.Sprint(e[member])
		}
		got = append(got, fmt.Sprintf("%s %v %s %s %s", e["type"], e["round"], text("driver_id", "-"), e["actor"], text("reason_code", "")))
		if now := e["at"].(string); now < at {
			rt.Fatalf("%s at %s comes after one at %s", e["type"], now, at)
		} else {
			at = now
		}
		if scheduled := e["type"] == "dispatch.expired"; (e["request_id"] == nil) != scheduled {
			rt.Fatalf("%s is of the request %v", e["type"], e["request_id"])
		}
	}
	if !slices.Equal(got, d.events) {
		rt.Fatalf("events\n%q, want\n%q", got, d.events)
	}
}

func (l *life) sameClaims(rt *rapid.T, d *modelDispatch) {
	got := l.texts(rt, `SELECT round || ' ' || driver_id || ' ' || outcome || ' ' || (ended_at IS NOT NULL)
		FROM claims WHERE dispatch_id = ? ORDER BY round`, d.id)
	var want []string
	for _, c := range d.claims {
		ended := 0
		if c.outcome != "WON" {
			ended = 1
		}
		want = append(want, fmt.Sprintf("%d %s %s %d", c.round, c.driver.id, c.outcome, ended))
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("claims\n%q, want\n%q", got, want)
	}
}

// sameOffers compares each driver's offers with the model's.
func (l *life) sameOffers(rt *rapid.T) {
	for _, v := range l.fleet {
		r := l.call("GET", "/v1/me/offers", v.token, "")
		l.same(rt, "offers", r, fine)
		var got, want []string
		for _, o := range items(r) {
			got = append(got, fmt.Sprintf("%s %v", o["id"], o["round"]))
		}
		for _, d := range l.dispatches {
			if s := d.status(time.Now()); (s == "PENDING" || s == "SCHEDULED") && v.onDuty && slices.Contains(v.regions, d.region) {
				want = append(want, fmt.Sprintf("%s %d", d.id, d.round))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Fatalf("%s is offered\n%q, want\n%q", v.id, got, want)
		}
	}
}

// soundRows checks the invariants of the tables, without the model.
func (l *life) soundRows(rt *rapid.T) {
	for what, query := range map[string]string{
		"two claims that stand": `SELECT dispatch_id FROM claims WHERE outcome = 'WON' GROUP BY dispatch_id HAVING COUNT(*) > 1`,
		"a claim that is not the dispatch's": `SELECT c.id FROM claims c JOIN dispatches d ON d.id = c.dispatch_id
			WHERE (c.outcome = 'WON') <> (COALESCE(d.claim_id, '') = c.id AND d.status <> 'CANCELED')`,
		"a state without its claim": `SELECT id FROM dispatches
			WHERE status IN ('ACCEPTED', 'IN_PROGRESS', 'COMPLETED') AND claim_id IS NULL OR status IN ('PENDING', 'EXPIRED') AND claim_id IS NOT NULL`,
		"a driver at two places": `SELECT a.id FROM dispatches a JOIN dispatches b ON b.accepted_by = a.accepted_by AND b.id <> a.id
			WHERE a.status IN ('ACCEPTED', 'IN_PROGRESS') AND b.status IN ('ACCEPTED', 'IN_PROGRESS')
			AND a.work_starts_at < b.work_ends_at AND b.work_starts_at < a.work_ends_at`,
		"an event that no relay will expand": `SELECT id FROM events WHERE next_at IS NULL`,
	} {
		if found := l.texts(rt, query); len(found) > 0 {
			rt.Fatalf("%s: %q", what, found)
		}
	}
}

func (l *life) texts(rt *rapid.T, query string, args ...any) (texts []string) {
	rows, err := l.raw.Query(query, args...)
	noError(rt, err)
	defer rows.Close()
	for rows.Next() {
		var s string
		noError(rt, rows.Scan(&s))
		texts = append(texts, s)
	}
	noError(rt, rows.Err())
	return texts
}
