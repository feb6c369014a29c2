import { expect } from "@playwright/test";
import { test } from "node:test";
import { Unreachable, request } from "../../web/assets/api.js";
import { Taps } from "../../web/driver/taps.js";

const turns = async () => { for (let n = 0; n < 20; n++) await null; }; // of the promises

test("an unanswered tap is repeated at a bounded pace, and after the offer's end its receipt is read", async ({ mock }) => {
  const ends = Date.parse("2026-12-01T00:00:12.000Z");
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: ends - 12_000 });
  const asked = [];
  const call = async (method, path) => {
    asked.push(`${method} ${path}`);
    if (path.endsWith("/accept")) throw new Unreachable();
    return { data: { round: 1, outcome: "WON" } };
  };
  const taps = new Taps({ kept: {}, keep() {}, call }, () => {});
  taps.tap("drv", { id: "dsp", round: 1, expires_at: new Date(ends).toISOString() });
  for (let ms = 0; ms < 12_000; ms += 50) {
    await turns();
    mock.timers.tick(50);
  }
  await turns();
  expect(new Set(asked)).toEqual(new Set(["POST /v1/dispatches/dsp/accept"]));
  expect(asked.length).toBeGreaterThanOrEqual(4);
  expect(asked.length).toBeLessThan(15);
  expect(taps.all.get("dsp").state).toBe("unknown");
  for (let ms = 0; ms < 8000; ms += 50) {
    mock.timers.tick(50);
    await turns();
  }
  expect(asked.at(-1)).toBe("GET /v1/me/dispatches/dsp/claim");
  expect(taps.all.get("dsp")).toMatchObject({ state: "done", answer: { kind: "won" } });
});

test("a list that was requested before a tap's answer does not undo it, although the estimate of the service's time is set back meanwhile", async ({ mock }) => {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  const taps = new Taps({ kept: {}, keep() {}, call: async () => ({ data: { result: "WON", dispatch: { id: "dsp", round: 1 } } }) }, () => {});
  const offer = { id: "dsp", round: 1, expires_at: new Date(2_000_000).toISOString() };
  mock.method(globalThis, "fetch", async () => Response.json({ server_time: new Date(Date.now() - 5000).toISOString() }));
  await request("GET", "/v1/me");
  const before = Date.now();
  taps.tap("drv", offer);
  await turns();
  expect(taps.all.get("dsp")).toMatchObject({ state: "done", answer: { kind: "won" } });
  taps.reconcile({ offers: [offer] }, before);
  expect(taps.all.get("dsp")).toBeDefined();
});
