import { expect } from "@playwright/test";
import { test } from "node:test";
import { Unreachable } from "../../web/assets/api.js";
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

test("a list undoes an answer only if it was requested after the answer, whatever the device's clock says", async ({ mock }) => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const session = { kept: {}, keep(kept) { this.kept = structuredClone(kept); }, call: async () => ({ data: { result: "WON", dispatch: { id: "dsp", round: 1 } } }) };
  const offer = { id: "dsp", round: 1, expires_at: new Date(2_000_000).toISOString() };
  const taps = new Taps(session, () => {});
  const before = performance.now();
  taps.tap("drv", offer);
  await turns();
  taps.reconcile({ offers: [offer], jobs: [] }, before);
  expect(taps.all.get("dsp")).toMatchObject({ state: "done", answer: { kind: "won" } });
  const reloaded = new Taps(session, () => {});
  expect(reloaded.all.get("dsp")).toMatchObject({ answer: { kind: "won" } });
  reloaded.reconcile({ jobs: [] }, 1);
  expect(reloaded.all.size).toBe(0);
  taps.reconcile({ offers: [offer] }, performance.now() + 1);
  expect(taps.all.size).toBe(0);
});
