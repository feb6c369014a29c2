import { expect } from "@playwright/test";
import { test } from "node:test";
import { Unreachable } from "../../static/assets/api.js";
import { Work } from "../../static/driver/work.js";

const turns = async () => { for (let n = 0; n < 20; n++) await null; }; // of the promises

/** Returns the work of a driver, and what of it is kept. */
function work(call) {
  const session = { kept: { known: { me: { id: "drv" }, offers: null, jobs: null, at: null, notices: [] } }, keep(part) { Object.assign(this.kept, structuredClone(part)); }, call, token: "t", renew: async () => false };
  return { work: new Work(session), session };
}

test("an unanswered tap is repeated at a bounded pace, and after the offer's end its receipt is read", async ({ mock }) => {
  const ends = Date.parse("2026-12-01T00:00:12.000Z");
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: ends - 12_000 });
  const asked = [];
  const { work: w } = work(async (method, path) => {
    if (/^\/v1\/me($|\/offers|\/dispatches\?)/.test(path)) throw new Unreachable(); // the page's own reading
    asked.push(`${method} ${path}`);
    if (path.endsWith("/accept")) throw new Unreachable();
    return { data: { round: 1, outcome: "WON" } };
  });
  w.accept({ id: "dsp", round: 1, expires_at: new Date(ends).toISOString() });
  for (let ms = 0; ms < 12_000; ms += 50) {
    await turns();
    mock.timers.tick(50);
  }
  await turns();
  expect(new Set(asked)).toEqual(new Set(["POST /v1/dispatches/dsp/accept"]));
  expect(asked.length).toBeGreaterThanOrEqual(4);
  expect(asked.length).toBeLessThan(15);
  expect(w.state.taps.get("dsp").state).toBe("unknown");
  for (let ms = 0; ms < 8000; ms += 50) {
    mock.timers.tick(50);
    await turns();
  }
  expect(asked.at(-1)).toBe("GET /v1/me/dispatches/dsp/claim");
  expect(w.state.taps.get("dsp")).toMatchObject({ state: "done", answer: { kind: "won" } });
  w.stop();
});

test("a list undoes an answer only if it was requested after the answer, whatever the device's clock says", async ({ mock }) => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const offer = { id: "dsp", round: 1, status: "PENDING", version: 1, opens_at: "2026-12-01T00:00:00Z", expires_at: new Date(2_000_000).toISOString() };
  const held = []; // readings of the lists, until they are answered
  let lists = () => new Promise((resolve) => { held.push(resolve); });
  const { work: w, session } = work(async (method, path) => {
    if (path.endsWith("/accept")) return { data: { dispatch: { ...offer, status: "ACCEPTED", version: 2 } } };
    if (path === "/v1/me") return { data: { id: "drv", on_duty: true } };
    if (path.endsWith("/claim")) return { data: { round: 1, outcome: "CANCELED" } };
    return lists();
  });
  const none = { data: { items: [], next_cursor: null }, status: 200, etag: null };
  w.read();
  await turns();
  w.accept(offer);
  await turns();
  for (const answer of held.splice(0)) answer(none); // the offers and the jobs as they were before the tap
  await turns();
  expect(w.state.taps.get("dsp")).toMatchObject({ state: "done", answer: { kind: "won" } });
  expect(w.state.jobs).toMatchObject([{ id: "dsp", status: "ACCEPTED" }]);
  const reloaded = new Work(structuredClone({ kept: session.kept })).state;
  expect(reloaded.taps.get("dsp")).toMatchObject({ answer: { kind: "won" }, at: 0 });
  mock.timers.setTime(0);
  lists = async () => none;
  await expect.poll(() => w.state.taps.size).toBe(0); // the answer has asked for another reading
  expect([w.state.taps.size, w.state.jobs, w.state.notices.map((n) => n.kind)]).toEqual([0, [], ["canceled"]]);
  w.stop();
});
