import { expect, hold, idle, test } from "../fixtures.ts";
import { column, counted, firstView, soon } from "../board.ts";
import type { Json } from "../service.ts";

test.use({ settings: { FIRSTTAP_RATE_LIMIT_DRIVER: "5000/s" } });

test("500 open dispatches: few bytes are sent in few requests, and only changed cards are rendered or read", { tag: "@slow" }, async ({ own: service, openConsole }) => {
  const [driver] = await service.drivers(1, "seoul");
  const all: Json[] = [];
  while (all.length < 500) {
    all.push(...await Promise.all(Array.from({ length: 20 }, (_, i) =>
      service.dispatch("seoul", { site_address: `${all.length + i} Teheran-ro`, expires_at: soon(3600_000), note: "Gate 2, ask for Mr. Park." }))));
  }
  const { page, bytes, urls } = await firstView(await openConsole("#/jobs", undefined, service), service.url);
  await counted(page, { Pending: 500 });
  await expect(column(page, "Pending").getByRole("link")).toHaveCount(500);
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  console.log(`The board's first view: ${(bytes() / 1000).toFixed(1)} KB in ${urls().length} requests`);
  expect(bytes()).toBeLessThan(200_000);
  expect(urls().length).toBeLessThanOrEqual(40);

  // An offer that nobody has seen for a minute renders its card again: here none is, however long the test takes.
  await page.route("**/v1/admin/board*", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), unseen: 0, unseen_ids: [] } });
  });
  await page.waitForResponse("**/v1/admin/board*"); // an earlier one may not have been rendered
  await idle(page);
  await expect(column(page, "Pending").getByText("not seen for 60 s")).toHaveCount(0);
  const drawn = () => page.evaluate(async (module) => (await import(module)).drawn.cards as number, "/console/board.js");
  const before = await drawn();
  const countdown = column(page, "Pending").getByRole("link").first().locator("time");
  for (let ticks = 0; ticks < 2; ticks++) await expect(countdown).not.toHaveText((await countdown.textContent())!);
  expect(await drawn()).toBe(before);

  const dispatches = /\/v1\/admin\/dispatches/;
  let asked = 0; // without the counts, which are read every ten seconds
  page.on("request", (r) => { if (dispatches.test(r.url())) asked++; });
  const burst = 60;
  const release = await hold(page, dispatches); // what comes during a reading is read together after it, however slowly it comes
  await Promise.all(Array.from({ length: burst }, (_, i) => service.dispatch("seoul", { site_address: `${i} New-ro`, expires_at: soon(3600_000) })));
  await expect(column(page, "Pending").getByRole("link")).toHaveCount(560);
  release();
  for (const d of all.slice(0, burst)) {
    const { dispatch } = await service.accept(d.id, driver!.token);
    await service.change(dispatch, "unassign");
  }
  await counted(page, { Pending: 560, Accepted: 0 });
  await expect(column(page, "Pending").getByRole("link", { name: "New-ro" })).toHaveCount(burst);
  await expect(column(page, "Pending").getByText("round 2")).toHaveCount(burst);
  // One rendering for each event, and one more for each dispatch that was read.
  expect(await drawn() - before).toBeLessThanOrEqual(burst * (1 + 1 + 2 + 1 + 1));
  expect(asked).toBeLessThan(burst / 2);
});
