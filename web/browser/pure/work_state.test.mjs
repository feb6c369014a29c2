import { expect } from "@playwright/test";
import { test } from "node:test";
import { answerOf, begin, cardsOf, mayTapAgain, missing, receiptSays, reduce, unreported } from "../../static/driver/work_state.js";

const t0 = Date.parse("2026-12-01T00:00:00.000Z");
const at = (s) => new Date(t0 + s * 1000).toISOString();
const me = (more = {}) => ({ id: "drv", name: "Kim", on_duty: true, ...more });
const offer = (id, more = {}) => ({ id, round: 1, version: 1, status: "PENDING", offer_status: "SENT", opens_at: at(0), expires_at: at(600), fee: { amount: 1, currency: "KRW" }, ...more });
const job = (id, more = {}) => offer(id, { status: "ACCEPTED", version: 2, ...more });

const happen = (state, ...events) => events.reduce(reduce, state);
const offers = (items, more = {}) => ({ type: "offers", items, more: false, asked: 10, at: t0, ...more });
const jobs = (items, more = {}) => ({ type: "jobs", items, held: [], lost: [], more: false, asked: 10, now: 11, at: t0, ...more });
const tap = (dispatch, key = "k") => ({ type: "tap", dispatch, key });
const answered = (id, answer, more = {}) => ({ type: "answered", id, key: "k", answer, now: 5, ...more });
const heard = (name, id, round = 1) => ({ type: "heard", event: `dispatch.${name}`, id, round });
const shown = (id, more = {}) => ({ type: "shown", id, round: 1, status: "SENT", ...more });

/** A page that has read its driver, these offers, and no jobs. */
const having = (...items) => happen(begin(), { type: "me", me: me(), at: t0 }, offers(items), jobs([]));
const ids = (list) => list?.map((d) => d.id ?? d.dispatch.id);

test("nothing is modified", () => {
  const freeze = (value) => {
    if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
    for (const v of value instanceof Map ? value.values() : Object.values(value)) freeze(v);
    if (value instanceof Map || value instanceof Set) for (const change of ["set", "add", "delete"]) value[change] = () => { throw new Error("modified"); };
    return Object.freeze(value);
  };
  const all = [
    { type: "me", me: me(), at: t0 }, offers([offer("a"), offer("b")]), jobs([job("j")]), shown("a"), { type: "noted", id: "a", round: 1, status: "SENT" }, tap(offer("b")),
    { type: "undecided", id: "b", key: "k", state: "unknown" }, answered("b", { kind: "won" }), heard("taken", "a"), offers([offer("c")]), jobs([], { lost: [{ kind: "canceled", dispatch: job("j") }] }),
    { type: "deed", about: "duty", deed: { wanted: false } }, { type: "duty", me: me({ on_duty: false }) }, { type: "forget", id: "b" }, { type: "link", link: "live" }, { type: "read", at: t0 },
    { type: "failed", error: new Error("x"), unreachable: true }, { type: "changed", what: "withdraw", id: "j" }, { type: "measured", id: "b", key: "k", answer: { kind: "taken" } },
  ];
  for (let state = freeze(begin()), n = 0; n < all.length; n++) state = freeze(reduce(state, all[n]));
});

test("an ended offer stays with its reason if the driver has seen it", () => {
  let s = happen(having(offer("a"), offer("b"), offer("c")), shown("a"), shown("b"), heard("taken", "a"), heard("expired", "c"));
  expect(ids(s.offers)).toEqual(["b"]);
  expect(s.ended).toEqual([{ dispatch: offer("a"), why: "taken" }]);
  s = reduce(s, offers([]));
  expect(s.ended.map((e) => [e.dispatch.id, e.why])).toEqual([["a", "taken"], ["b", "gone"]]);
  s = reduce(s, heard("canceled", "b")); // the event arrives after the list
  expect(s.ended.map((e) => e.why)).toEqual(["taken", "canceled"]);
  expect(ids(cardsOf(s)).sort()).toEqual(["a", "b"]);
  expect(reduce(s, { type: "forget", id: "a" }).ended.length).toBe(1);
});

test("a list of offers that arrives after an event brings no ended round back, and brings the next one", () => {
  const s = happen(having(offer("a")), shown("a"), heard("taken", "a"), offers([offer("a")]));
  expect([ids(s.offers), s.ended[0].why]).toEqual([[], "taken"]);
  const next = reduce(s, offers([offer("a", { round: 2 })]));
  expect([ids(next.offers), next.ended]).toEqual([["a"], []]);
});

test("another round shows the terms of the one before, until the offer is gone", () => {
  let s = happen(having(offer("a", { region: "old" })), offers([offer("a", { round: 2, region: "new" })]));
  expect(s.before.get("a").region).toBe("old");
  s = reduce(s, offers([offer("a", { round: 2, region: "new" })]));
  expect(s.before.get("a").region).toBe("old");
  expect(reduce(s, offers([])).before.size).toBe(0);
});

test("an unchanged list changes nothing but what it says of the taps", () => {
  const s = having(offer("a"));
  const same = reduce(s, { type: "offers", asked: 20, at: t0 });
  expect([same.offers, same.taps]).toEqual([s.offers, s.taps]);
  expect(same.taps).toBe(s.taps);
  const lost = happen(s, tap(offer("a")), answered("a", { kind: "taken" }));
  expect(reduce(lost, { type: "offers", asked: 20, at: t0 }).taps.size).toBe(0);
});

test("a tap is asked once, and may be repeated after some answers and for another round", () => {
  const s = happen(having(offer("a")), tap(offer("a")));
  expect(s.taps.get("a")).toMatchObject({ state: "asking", driver: "drv", round: 1 });
  expect(reduce(s, tap(offer("a"), "other"))).toBe(s);
  const taken = reduce(s, answered("a", { kind: "taken" }));
  expect(reduce(taken, tap(offer("a"), "other"))).toBe(taken);
  expect(reduce(taken, tap(offer("a", { round: 2 }), "other")).taps.get("a").round).toBe(2);
  for (const kind of ["early", "stale", "busy", "unfit", "refused"]) {
    const again = happen(s, answered("a", { kind }), tap(offer("a"), "other"));
    expect(again.taps.get("a"), kind).toMatchObject({ key: "other", state: "asking" });
  }
  expect(reduce(begin(), tap(offer("a"))).taps.size).toBe(0); // a tap needs its driver
  expect(mayTapAgain({ state: "asking" })).toBe(false);
});

test("an answer to an earlier tap is not one to the next, and a settled tap stays settled", () => {
  const s = happen(having(offer("a")), tap(offer("a")), answered("a", { kind: "busy" }), tap(offer("a"), "second"));
  expect(reduce(s, answered("a", { kind: "won" }))).toBe(s);
  expect(reduce(s, { type: "undecided", id: "none", key: "k", state: "unknown" })).toBe(s);
  const won = reduce(s, answered("a", { kind: "won" }, { key: "second" }));
  expect(reduce(won, answered("a", { kind: "gone" }, { key: "second" }))).toBe(won);
  expect(reduce(won, { type: "undecided", id: "a", key: "second", state: "unknown" })).toBe(won);
});

test("a win is a job at once, and the list has the last word once it was asked for after the win", () => {
  let s = happen(having(offer("a")), tap(offer("a")), answered("a", { kind: "won" }, { now: 30 }));
  expect(s.jobs).toMatchObject([{ id: "a", status: "ACCEPTED" }]);
  expect(missing(s, [], 20)).toEqual([]);
  s = reduce(s, jobs([], { asked: 20 }));
  expect([ids(s.jobs), s.taps.size]).toEqual([["a"], 1]);
  expect(ids(missing(s, [], 40))).toEqual(["a"]);
  s = reduce(s, jobs([], { asked: 40, lost: [{ kind: "canceled", dispatch: s.jobs[0] }] }));
  expect([s.jobs, s.taps.size, s.notices.map((n) => n.kind)]).toEqual([[], 0, ["canceled"]]);
  expect(reduce(s, { type: "dismiss", notice: s.notices[0] }).notices).toEqual([]);
});

test("the list of jobs settles a tap without an answer, in its round", () => {
  const s = happen(having(offer("a"), offer("b")), tap(offer("a")), tap(offer("b")), jobs([job("a"), job("b", { round: 2 })], { now: 50 }));
  expect(s.taps.get("a")).toMatchObject({ state: "done", answer: { kind: "won" }, at: 50 });
  expect(s.taps.get("b").state).toBe("asking");
});

test("a list of offers undoes an answer only if it was asked for after it", () => {
  const s = happen(having(offer("a")), tap(offer("a")), answered("a", { kind: "taken" }, { now: 30 }));
  expect(reduce(s, offers([offer("a")], { asked: 20 })).taps.size).toBe(1);
  expect(reduce(s, offers([offer("a")], { asked: 40 })).taps.size).toBe(0);
  const stale = happen(having(offer("a")), tap(offer("a")), answered("a", { kind: "stale" }, { now: 30 }));
  expect(reduce(stale, offers([offer("a", { round: 2 })], { asked: 40 })).taps.size).toBe(1); // it says why the terms are new
  const open = happen(having(offer("a")), tap(offer("a")), offers([offer("a", { expires_at: at(900) })]));
  expect(open.taps.get("a").dispatch.expires_at).toBe(at(900));
});

test("a job in two lists is the newer one, and the jobs end what was offered", () => {
  const s = happen(having(offer("a")), shown("a"), offers([]), jobs([job("a", { version: 3, status: "IN_PROGRESS" }), job("a")]));
  expect(s.jobs).toMatchObject([{ version: 3, status: "IN_PROGRESS" }]);
  expect(s.ended).toEqual([]);
  expect(reduce(s, heard("canceled", "a")).heard.size).toBe(0); // what becomes of a job is read
});

test("off duty there are no offers, and what ended is not shown", () => {
  const s = happen(having(offer("a"), offer("b")), shown("a"), heard("taken", "a"), { type: "duty", me: me({ on_duty: false }) });
  expect([s.offers, s.ended, cardsOf(s)]).toEqual([[], [], []]);
});

test("an offer is reported as seen once in each round, while that is news", () => {
  const s = having(offer("a"));
  expect(unreported(s, { id: "a", round: 1, status: "SENT" })).toBe(true);
  const told = reduce(s, shown("a"));
  expect(unreported(told, { id: "a", round: 1, status: "SENT" })).toBe(false);
  expect(unreported(told, { id: "a", round: 2, status: "PENDING" })).toBe(true);
  expect(unreported(s, { id: "a", round: 1, status: "SEEN" })).toBe(false);
  expect(reduce(told, shown("a"))).toBe(told);
  expect(reduce(told, { type: "noted", id: "a", round: 1, status: "SENT" }).offers[0].offer_status).toBe("SEEN");
});

test("the memory is bounded, and a tap without an answer is not forgotten", () => {
  let s = happen(having(), tap(offer("open")));
  for (let n = 0; n < 300; n++) s = happen(s, tap(offer(`d${n}`)), answered(`d${n}`, { kind: "expired" }), heard("taken", `d${n}`));
  expect([s.taps.size, s.taps.has("open"), s.heard.size]).toEqual([30, true, 200]);
});

test("the stream's first cut is no news, and a lost network always is", () => {
  const cut = { type: "link", link: "cut" };
  expect(reduce(begin(), cut).link).toBe("connecting");
  expect(reduce(begin(), { ...cut, sure: true }).link).toBe("cut");
  expect(happen(begin(), { type: "link", link: "live" }, cut).link).toBe("cut");
  expect(happen(begin(), { type: "failed", error: new Error(), unreachable: true }).link).toBe("cut");
  expect(happen(begin(), { type: "failed", error: new Error(), unreachable: false }).link).toBe("connecting");
});

test("another driver's taps are not this one's", () => {
  const taps = { a: { key: "k", driver: "other", round: 1, dispatch: offer("a"), state: "unknown" }, b: { key: "k", driver: "drv", round: 1, dispatch: offer("b"), state: "done", at: 99, answer: { kind: "taken" } } };
  expect([...begin({ me: me() }, taps).taps.keys()]).toEqual(["b"]);
  expect(begin({ me: me() }, taps).taps.get("b").at).toBe(0); // this page's lists are newer
  expect([...happen(begin({}, taps), { type: "me", me: me(), at: t0 }).taps.keys()]).toEqual(["b"]);
});

test("cards: the latest opening first, declined offers last, each dispatch once", () => {
  const s = happen(having(offer("a"), offer("b", { opens_at: at(5) }), offer("c", { opens_at: at(9), offer_status: "DECLINED" })), tap(offer("a")));
  expect(cardsOf(s).map((c) => [c.dispatch.id, c.tap?.state])).toEqual([["b", undefined], ["a", "asking"], ["c", undefined]]);
});

test("refusals and receipts that decide nothing are no answers", () => {
  expect(answerOf({ code: "ALREADY_TAKEN", body: { final: false } })).toBe(null);
  expect(answerOf({ code: "ALREADY_TAKEN", body: { final: true } })).toEqual({ kind: "taken", waiting: true });
  expect(answerOf({ code: "LATER_CODE", body: {} })).toEqual({ kind: "refused", detail: "LATER_CODE" });
  const receipt = (outcome, more) => receiptSays({ round: 1, outcome, rank: null, behind_ms: null, decided_at: null, ...more }, 1);
  expect(receipt("PENDING")).toBe(null);
  expect(receipt("WON", { round: 2 })).toEqual({ kind: "stale" });
  expect(receipt("LOST")).toEqual({ kind: "taken", waiting: true });
  expect(receipt("LOST", { rank: 2, behind_ms: 3.1 })).toEqual({ kind: "taken", rank: 2, behind: 3.1 });
  expect([receipt("NO_ATTEMPT"), receipt("UNASSIGNED")].map((a) => a.kind)).toEqual(["missed", "gone"]);
});
