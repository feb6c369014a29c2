import { expect } from "@playwright/test";
import { test } from "node:test";
import { alertsOf, every, expiredSince, gather, lookIsDue, news } from "../../static/console/alerts_state.js";

const d = (id, round = 1, more = {}) => ({ id, round, ...more });

test("a dispatch is alerted to once in each round, for each reason", () => {
  let { told, due } = news([], "unseen", [d("a")]);
  expect(due).toEqual([d("a")]);
  expect(news(told, "unseen", [d("a")])).toEqual({ told, due: [] });
  expect(news(told, "unseen", [d("a")]).told).toBe(told);
  ({ told, due } = news(told, "unseen", [d("a"), d("b")]));
  expect(due).toEqual([d("b")]);
  ({ told, due } = news(told, "expired", [d("a")]));
  expect(due).toEqual([d("a")]);
  ({ told, due } = news(told, "unseen", [d("a", 2)]));
  expect(due).toEqual([d("a", 2)]);
  expect(news(JSON.parse(JSON.stringify(told)), "unseen", [d("a"), d("a", 2), d("b")]).due).toEqual([]); // by another tab, from the storage
});

test("the memory is bounded, and what goes on is not forgotten", () => {
  const old = d("old");
  let { told } = news([], "unseen", [old]);
  for (let n = 0; n < 3000; n++) ({ told } = news(told, "unseen", [old, d(`dsp_${n}`)]));
  expect([told.length, new Set(told).size]).toEqual([1000, 1000]);
  expect(news(told, "unseen", [old]).due).toEqual([]);
});

test("many alerts at once are one", () => {
  const three = [d("a"), d("b"), d("c")];
  expect(alertsOf("unseen", three)).toEqual(three.map((of) => ({ kind: "unseen", of: [of] })));
  expect(alertsOf("expired", [...three, d("e")])).toEqual([{ kind: "expired", of: [...three, d("e")] }]);
  expect(alertsOf("expired", [])).toEqual([]);
});

test("what expired before is not alerted to", () => {
  const at = (s) => new Date(s * 1000).toISOString();
  const all = [d("before", 1, { status: "EXPIRED", expires_at: at(99) }), d("then", 1, { status: "EXPIRED", expires_at: at(100) }),
    d("later", 1, { status: "EXPIRED", expires_at: at(101) }), d("open", 1, { status: "PENDING", expires_at: at(200) })];
  expect(expiredSince(all, 100_000).map((e) => e.id)).toEqual(["then", "later"]);
});

test("events that come one after the other are one look, however long ago the last look was", () => {
  expect([every - 1, every].map((at) => lookIsDue({ at, looked: 0 }))).toEqual([false, true]);
  const asked = 5 * every;
  expect([asked, asked + gather - 1, asked + gather].map((at) => lookIsDue({ at, looked: 0, asked }))).toEqual([false, false, true]);
});
