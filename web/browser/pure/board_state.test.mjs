import { expect } from "@playwright/test";
import { test } from "node:test";
import { columns, empty, passes, reduce } from "../../static/console/board_state.js";

const t0 = Date.parse("2026-12-01T00:00:00.000Z");
const at = (s) => new Date(t0 + s * 1000).toISOString();

const dispatch = (id, more = {}) => ({
  id, external_id: null, status: "PENDING", round: 1, version: 1, region: "seoul", vehicle_class: "45m", site_address: `at ${id}`,
  note: null, accepted_by: null, accepted_at: null, opens_at: at(0), expires_at: at(600), updated_at: at(0), ...more,
});
const event = (type, id, version, status, more = {}) => ({
  type: `dispatch.${type}`, dispatch_id: id, version, status, round: 1, region: "seoul", vehicle_class: "45m",
  opens_at: at(0), expires_at: at(600), at: at(10), driver_id: null, ...more,
});
const counts = (more = {}) => ({ SCHEDULED: 0, PENDING: 0, ACCEPTED: 0, IN_PROGRESS: 0, COMPLETED: 0, CANCELED: 0, EXPIRED: 0, ...more });
const board = (s, of, more = {}) =>
  ({ type: "board", board: { counts: counts(of), since: at(-86400), unseen: 0, regions: [], server_time: at(s), ...more } });
const lists = (state, items, more = {}) => ({ type: "lists", items, cut: {}, from: state.seq, now: t0 + 5000, ...more });
const events = (...e) => ({ type: "events", events: e, now: t0 + 10_000 });

/** Returns a board that has read these dispatches and counted them. */
function having(...items) {
  const of = {};
  for (const d of items) of[d.status] = (of[d.status] ?? 0) + 1;
  return reduce(reduce(empty(), lists(empty(), items)), board(5, of));
}
const card = (state, id) => state.cards.get(id);
const ids = (state, status, filter = {}) => columns(state, filter)[status].map((c) => c.id);

test("an event moves the card and the counts", () => {
  const s = reduce(having(dispatch("a"), dispatch("b")), events(event("accepted", "a", 2, "ACCEPTED", { driver_id: "drv" })));
  expect([ids(s, "PENDING"), ids(s, "ACCEPTED")]).toEqual([["b"], ["a"]]);
  expect(s.counts).toEqual(counts({ PENDING: 1, ACCEPTED: 1 }));
  expect(card(s, "a")).toMatchObject({ accepted_by: "drv", accepted_at: at(10), site_address: "at a" });
  expect(s.wanted.size).toBe(0);
});

test("a version never goes back, whatever the source of the older one", () => {
  const before = having(dispatch("a"));
  let s = reduce(before, events(event("accepted", "a", 2, "ACCEPTED", { driver_id: "drv" }), event("canceled", "a", 3, "CANCELED")));
  s = reduce(s, events(event("accepted", "a", 2, "ACCEPTED", { driver_id: "drv" })));
  s = reduce(s, lists(before, [dispatch("a")]));
  s = reduce(s, { type: "read", items: [dispatch("a")], now: t0 });
  expect(card(s, "a")).toMatchObject({ status: "CANCELED", version: 3 });
  expect(s.counts).toEqual(counts({ CANCELED: 1 }));
});

test("a withdrawal ends one round and begins the next, in two events of one version", () => {
  const s = reduce(having(dispatch("a", { status: "ACCEPTED", version: 2, accepted_by: "drv" })),
    events(event("withdrawn", "a", 3, "PENDING", { driver_id: "drv" }), event("reopened", "a", 3, "PENDING", { round: 2 })));
  expect(card(s, "a")).toMatchObject({ status: "PENDING", round: 2, accepted_by: null });
  expect(s.counts).toEqual(counts({ PENDING: 1 }));
});

test("fields that an event omits are wanted until they are read", () => {
  let s = reduce(having(dispatch("a")), events(event("created", "b", 1, "PENDING"), event("updated", "a", 2, "PENDING", { round: 2 })));
  expect([...s.wanted]).toEqual([["b", 1], ["a", 2]]);
  expect(s.counts).toEqual(counts({ PENDING: 2 }));
  s = reduce(s, { type: "read", items: [dispatch("b"), dispatch("a", { version: 1 })], asked: [["b", 1]], now: t0 });
  expect([...s.wanted]).toEqual([["a", 2]]);
  s = reduce(s, { type: "read", items: [dispatch("a", { version: 2, round: 2, site_address: "elsewhere" })], asked: [["a", 2]], now: t0 });
  expect(s.wanted.size).toBe(0);
  expect(card(s, "a").site_address).toBe("elsewhere");
});

test("the event of a longer window is complete", () => {
  const s = reduce(having(dispatch("a")), events(event("updated", "a", 2, "PENDING", { expires_at: at(900) })));
  expect(s.wanted.size).toBe(0);
  expect(card(s, "a")).toMatchObject({ version: 2, expires_at: at(900), site_address: "at a" });
});

test("a missed earlier event makes the terms wanted", () => {
  const s = reduce(having(dispatch("a")), events(event("accepted", "a", 3, "ACCEPTED", { driver_id: "drv" })));
  expect([...s.wanted]).toEqual([["a", 3]]);
});

test("counts are the service's, plus the events that it had not counted yet", () => {
  let s = having(dispatch("a"), dispatch("b"));
  s = reduce(s, events(event("accepted", "a", 2, "ACCEPTED", { at: at(20) }), event("canceled", "b", 2, "CANCELED", { at: at(40) })));
  s = reduce(s, board(30, { PENDING: 1, ACCEPTED: 1 }));
  expect(s.counts).toEqual(counts({ ACCEPTED: 1, CANCELED: 1 }));
  s = reduce(s, board(25, { PENDING: 7 }));
  expect(s.counts).toEqual(counts({ ACCEPTED: 1, CANCELED: 1 }));
  s = reduce(s, events(event("created", "c", 1, "PENDING", { at: at(29) })));
  expect(s.counts).toEqual(counts({ ACCEPTED: 1, CANCELED: 1 }));
});

test("the service counts a dispatch whose earlier state is unknown", () => {
  const s = reduce(having(), events(event("canceled", "x", 5, "CANCELED")));
  expect(s.recount).toBe(true);
  expect(reduce(s, board(30, { CANCELED: 1 }))).toMatchObject({ recount: false, counts: counts({ CANCELED: 1 }) });
});

test("the clock opens and expires a dispatch once, and nothing reverts that", () => {
  let s = having(dispatch("a", { status: "SCHEDULED", opens_at: at(60), expires_at: at(120) }));
  expect(reduce(s, { type: "clock", now: t0 + 59_000 })).toBe(s);
  s = reduce(s, { type: "clock", now: t0 + 61_000 });
  expect(s.counts).toEqual(counts({ PENDING: 1 }));
  s = reduce(s, events(event("opened", "a", 1, "PENDING", { opens_at: at(60), expires_at: at(120), at: at(60) })));
  s = reduce(s, lists(s, [dispatch("a", { status: "SCHEDULED", opens_at: at(60), expires_at: at(120) })]));
  expect(s.counts).toEqual(counts({ PENDING: 1 }));
  s = reduce(s, { type: "clock", now: t0 + 121_000 });
  s = reduce(s, events(event("expired", "a", 2, "EXPIRED", { opens_at: at(60), expires_at: at(120), at: at(123) })));
  expect(s.counts).toEqual(counts({ EXPIRED: 1 }));
});

test("a full reading drops removed dispatches, and keeps concurrent changes", () => {
  const before = having(dispatch("a"), dispatch("b"));
  const s = reduce(reduce(before, events(event("created", "c", 1, "PENDING"))), lists(before, [dispatch("b")]));
  expect(ids(s, "PENDING").sort()).toEqual(["b", "c"]);
});

test("with a region, only its dispatches are counted", () => {
  let s = reduce(empty("seoul"), lists(empty("seoul"), [dispatch("a")]));
  s = reduce(s, board(5, { PENDING: 1 }));
  s = reduce(s, events(event("created", "b", 1, "PENDING", { region: "busan" }), event("updated", "a", 2, "PENDING", { region: "busan" })));
  expect(s.counts).toEqual(counts());
  expect([...s.regions].sort()).toEqual(["busan", "seoul"]);
});

test("filters let the same dispatches through as the API", () => {
  const d = dispatch("dsp_1", { external_id: "Order-7", site_address: "서울시 Teheran-ro", note: "Gate 2" });
  for (const q of ["order-7", "TEHERAN", "서울", "gate", "dsp_1"]) expect(passes(d, { q }), q).toBe(true);
  for (const q of ["2 gate", "order7", "ORDER/7", "ｇａｔｅ", "ro 서울시"]) expect(passes(d, { q }), q).toBe(true);
  for (const q of ["gate 3", "ate", "--", "' %", "dsp_2", "1", "dsp"]) expect(passes(d, { q }), q).toBe(false);
  expect(passes(d, { region: "busan" })).toBe(false);
  expect(passes(d, { vehicleClass: "16m" })).toBe(false);
});

test("an unseen offer comes first, until an event of it", () => {
  let s = reduce(having(dispatch("a"), dispatch("b", { expires_at: at(900) })), board(70, { PENDING: 2 }, { unseen: 1, unseen_ids: ["b"] }));
  expect(ids(s, "PENDING")).toEqual(["b", "a"]);
  s = reduce(s, events(event("accepted", "b", 2, "ACCEPTED", { at: at(80) }), event("withdrawn", "b", 3, "PENDING", { at: at(81) }),
    event("reopened", "b", 3, "PENDING", { round: 2, at: at(81) })));
  expect(s.unseen.size).toBe(0);
});

test("an unchanged column stays the same array, and the ended dispatches are bounded", () => {
  let s = having(dispatch("a"), dispatch("b", { status: "ACCEPTED", version: 2 }));
  const old = columns(s, {});
  s = reduce(s, events(event("canceled", "b", 3, "CANCELED")));
  expect(columns(s, {}, old).PENDING).toBe(old.PENDING);
  for (let i = 0; i < 3000; i += 100) {
    s = reduce(s, events(...Array.from({ length: 100 }, (_, j) => event("canceled", `x${i + j}`, 2, "CANCELED", { at: at(i + j) }))));
  }
  expect(s.cards.size).toBeLessThanOrEqual(1001);
  expect(s.wanted.size).toBeLessThanOrEqual(1000);
  expect(s.regions.size).toBeLessThan(10);
});

test("the clocks of events and answers may differ: an expired dispatch stays expired", () => {
  const window = { opens_at: at(60), expires_at: at(120) };
  let s = having(dispatch("a", { status: "SCHEDULED", ...window }));
  s = reduce(s, { type: "clock", now: t0 + 121_000 }); // the tab was asleep: it opened and ended meanwhile
  expect([card(s, "a").status, s.counts]).toEqual(["EXPIRED", counts({ EXPIRED: 1 })]);
  s = reduce(s, events(event("opened", "a", 1, "PENDING", { ...window, at: at(60) })));
  expect(card(s, "a").status).toBe("EXPIRED");
  s = reduce(s, { type: "events", events: [event("created", "b", 1, "PENDING", window)], now: t0 + 130_000 });
  s = reduce(s, { type: "read", items: [dispatch("c", window)], now: t0 + 130_000 });
  expect(ids(s, "EXPIRED").sort()).toEqual(["a", "b", "c"]);
});

test("a change by the clock is counted once, at its due time", () => {
  let s = having(dispatch("a", { status: "SCHEDULED", opens_at: at(80), expires_at: at(120) }), dispatch("b", { expires_at: at(50) }));
  s = reduce(s, { type: "clock", now: t0 + 130_000 });
  expect(s.counts).toEqual(counts({ EXPIRED: 2 }));
  s = reduce(s, board(70, { SCHEDULED: 1, EXPIRED: 1 })); // as it was after b ended and before a opened
  expect(s.counts).toEqual(counts({ EXPIRED: 2 }));
  let late = having(dispatch("a", { expires_at: at(50) }));
  late = reduce(late, { ...lists(late, [dispatch("a", { expires_at: at(50) })]), now: t0 + 61_000 });
  expect(late.counts).toEqual(counts({ EXPIRED: 1 }));
  late = reduce(having(dispatch("a", { opens_at: at(0), expires_at: at(50) })), board(60, { EXPIRED: 1 }));
  late = reduce(late, { type: "lists", items: [dispatch("a", { expires_at: at(50), version: 1 })], cut: {}, from: late.seq, now: t0 + 61_000 });
  expect(late.counts).toEqual(counts({ EXPIRED: 1 }));
});

test("a reading of an already counted moment is not counted again", () => {
  let s = reduce(having(), events(event("created", "a", 1, "PENDING", { at: at(5) })));
  expect(s.counts).toEqual(counts());
  s = reduce(s, { type: "read", items: [dispatch("b", { updated_at: at(4) })], now: t0 + 9000 });
  expect(s.counts).toEqual(counts());
});

test("a count never goes below zero", () => {
  const s = reduce(reduce(having(dispatch("a")), board(9, {})), events(event("canceled", "a", 2, "CANCELED")));
  expect(s.counts).toEqual(counts({ CANCELED: 1 }));
});

test("an unseen offer stays unseen through events that do not concern views", () => {
  const unseen = () => reduce(having(dispatch("a")), board(70, { PENDING: 1 }, { unseen: 1, unseen_ids: ["a"] }));
  const longer = reduce(unseen(), events(event("updated", "a", 2, "PENDING", { expires_at: at(900), at: at(80) })));
  expect([...longer.unseen]).toEqual(["a"]);
  expect(reduce(unseen(), events(event("canceled", "a", 2, "CANCELED", { at: at(80) }))).unseen.size).toBe(0);
  expect(reduce(unseen(), events(event("updated", "a", 2, "PENDING", { round: 2, at: at(80) }))).unseen.size).toBe(0);
  expect(reduce(unseen(), board(80, { PENDING: 1 })).unseen.size).toBe(0);
});

test("a late event of the same version takes back neither the round nor the end", () => {
  let s = reduce(having(dispatch("a", { version: 3, round: 2 })), events(event("withdrawn", "a", 3, "PENDING", { round: 1 })));
  expect(card(s, "a").round).toBe(2);
  s = reduce(having(dispatch("b", { version: 3, status: "EXPIRED" })), events(event("reopened", "b", 3, "PENDING")));
  expect(card(s, "b").status).toBe("EXPIRED");
});

test("the driver of a dispatch stays known until it has none", () => {
  let s = reduce(having(dispatch("a")), events(event("accepted", "a", 2, "ACCEPTED", { driver_id: "drv" }), event("started", "a", 3, "IN_PROGRESS")));
  expect(card(s, "a").accepted_by).toBe("drv");
  s = reduce(s, events(event("unassigned", "a", 4, "PENDING", { driver_id: "drv", round: 2 })));
  expect(card(s, "a").accepted_by).toBe(null);
});

test("a wanted dispatch is wanted until its version is read, and a deleted one is not wanted for ever", () => {
  let s = reduce(having(), events(event("created", "b", 1, "PENDING")));
  const asked = [["b", 1]];
  s = reduce(s, events(event("updated", "b", 2, "PENDING", { round: 2 })));
  s = reduce(s, { type: "read", items: [dispatch("b")], asked, now: t0 });
  expect([...s.wanted]).toEqual([["b", 2]]);
  expect(reduce(s, { type: "read", items: [], asked: [["b", 2]], now: t0 }).wanted.size).toBe(0); // it was deleted meanwhile
  expect(reduce(s, lists(s, [dispatch("b", { version: 2, round: 2 })])).wanted.size).toBe(0);
});

test("a dispatch that leaves the region is not counted in its new region", () => {
  let s = reduce(reduce(empty("seoul"), lists(empty("seoul"), [dispatch("a"), dispatch("b", { region: "busan" })])), board(5, { PENDING: 1, CANCELED: 1 }));
  s = reduce(s, events(event("canceled", "b", 2, "CANCELED", { region: "busan" }), event("updated", "b", 3, "PENDING", { region: "seoul" })));
  expect(s.counts).toEqual(counts({ PENDING: 2, CANCELED: 1 }));
});

test("a full reading keeps older ended dispatches, and marks the incomplete columns", () => {
  const s = having(dispatch("a", { status: "CANCELED" }));
  const next = reduce(s, lists(s, [], { cut: { PENDING: true } }));
  expect(ids(next, "CANCELED")).toEqual(["a"]);
  expect(next).toMatchObject({ loaded: true, cut: { PENDING: true }, since: at(-86400) });
  expect(empty().loaded).toBe(false);
});

test("an answer without news renders no card again, and changes no earlier state", () => {
  const s = having(dispatch("a"));
  const again = reduce(s, lists(s, [dispatch("a")]));
  expect(card(again, "a")).toBe(card(s, "a"));
  const wanting = reduce(s, events(event("created", "b", 1, "PENDING")));
  reduce(wanting, { type: "read", items: [dispatch("b"), dispatch("c")], asked: [["b", 1]], now: t0 });
  expect([[...s.cards.keys()], [...wanting.cards.keys()], [...wanting.wanted]]).toEqual([["a"], ["a", "b"], [["b", 1]]]);
});

test("the earliest opening or end comes first, and in other columns the newest dispatch", () => {
  const s = having(
    dispatch("p1", { expires_at: at(300) }), dispatch("p2", { expires_at: at(200) }),
    dispatch("s1", { status: "SCHEDULED", opens_at: at(90) }), dispatch("s2", { status: "SCHEDULED", opens_at: at(80) }),
    dispatch("a1", { status: "ACCEPTED", accepted_at: at(1) }), dispatch("a2", { status: "ACCEPTED", accepted_at: at(2) }),
    dispatch("c1", { status: "CANCELED", updated_at: at(1) }), dispatch("c2", { status: "CANCELED", updated_at: at(2) }));
  expect(["PENDING", "SCHEDULED", "ACCEPTED", "CANCELED"].map((status) => ids(s, status)))
    .toEqual([["p2", "p1"], ["s2", "s1"], ["a2", "a1"], ["c2", "c1"]]);
});

test("the newest ended dispatches are kept, and too many uncounted moves cause a count", () => {
  let s = having();
  const many = (n, from = 0) => Array.from({ length: n }, (_, i) => event("created", `x${from + i}`, 1, "CANCELED", { at: at(10 + from + i) }));
  s = reduce(s, events(...many(1001)));
  expect(s.cards.has("x1000")).toBe(true);
  expect(s.cards.has("x0")).toBe(false);
  expect(s.recount).toBe(false);
  s = reduce(s, events(...many(4500, 1001)));
  expect(s).toMatchObject({ recount: true, moves: { length: 5000 } });
});
