import { accessible, expect, test } from "../fixtures.ts";
import { button, lookAway, section, status } from "../dispatch.ts";
import { attempts } from "../driver.ts";

const digits = (n: number) => String(Number(n.toPrecision(3)));

/** Formats a time below a minute as the page does. */
const spanWords = (us: number) => (us < 1000 ? `${us} µs` : us < 999_500 ? `${digits(us / 1000)} ms` : `${digits(us / 1e6)} s`);

test("a race of ten appears without reloading", async ({ openDispatch, service, region }) => {
  const drivers = await service.drivers(10, region);
  const { page, d } = await openDispatch();
  await expect(page.getByText("Nobody has tapped in round 1.")).toBeVisible();
  await expect(page.getByText("live", { exact: true })).toBeVisible();

  const [first, ...others] = drivers;
  const winner = await service.accept(d.id, first!.token, 1);
  expect(winner.result).toBe("SUCCESS");
  await service.acceptOnce(d.id, others);

  const rows = page.getByRole("region", { name: "The taps" }).locator("tbody tr");
  await expect(rows).toHaveCount(10);
  await expect(page.getByText(/^10 taps by 10 drivers\. Driver 1 won, .* ahead of the next\.$/)).toBeVisible();
  await expect(rows.filter({ has: page.getByRole("cell", { name: "won", exact: true }) })).toHaveCount(1);
  await expect(rows.filter({ has: page.getByRole("cell", { name: "lost", exact: true }) })).toHaveCount(9);
  await expect(rows.getByRole("cell", { name: /^\+[\d.]+ (µs|ms|s)$/ })).toHaveCount(9);
  await expect(page.locator("svg.race .won path")).toHaveCount(1);
  await expect(page.locator("svg.race .lost circle")).toHaveCount(9);
  await expect(status(page)).toHaveText("ACCEPTED");
  await expect(page.getByText(/^Driver 1 since /)).toBeVisible();
  await expect(section(page, "How far it got").getByRole("row", { name: /^1 / })).toContainText("10");
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText("accepted");
  await expect(section(page, "Who was told").locator("tbody tr")).toHaveCount(10);

  const { items } = await service.call("GET", `/v1/admin/dispatches/${d.id}/attempts`);
  const last = items.at(-1);
  await page.getByRole("group", { name: /^The race, drawn/ }).focus();
  await expect(page.getByText(/^Driver 1: won · the first tap · /)).toBeVisible();
  await page.keyboard.press("End");
  const loser = drivers.find((v) => v.id === last.driver_id)!.name;
  await expect(page.getByText(new RegExp(`^${loser}: lost · .* behind the winner · .* after the first tap`))).toBeVisible();
  await page.getByLabel("Axis").selectOption("log");
  await expect(page.locator("svg.race .axis text").first()).toHaveText("0");
  await accessible(page);
});

test("taps that are written after the answer appear without reloading", { tag: "@slow" }, async ({ openDispatch, service, region }) => {
  const drivers = await service.drivers(6, region);
  const { page, d } = await openDispatch();
  await expect(page.getByText("Nobody has tapped in round 1.")).toBeVisible();
  await lookAway(page);
  const written = [0, 1, 3];
  let show = () => {};
  const all = new Promise<void>((resolve) => { show = resolve; });
  await page.route("**/attempts?**", async (route) => {
    await all; // the page looks a few times only, and the service may take long: what it sees is up to the test
    const response = await route.fetch();
    const body = await response.json();
    await route.fulfill({ response, json: { ...body, items: body.items.slice(0, written.shift()) } });
  });
  await page.route("**/notifications?limit=1*", async (route) => { // no tap is counted before the last one is written
    const response = await route.fetch();
    const body = await response.json();
    await route.fulfill({ response, json: { ...body, funnel: body.funnel.map((f: object) => (written.length > 0 ? { ...f, tapped: 0 } : f)) } });
  });
  await service.acceptOnce(d.id, drivers);
  await expect.poll(() => attempts(service, d.id)).toHaveLength(drivers.length);
  show();
  await expect(page.getByText(/^6 taps by 6 drivers\./)).toBeVisible();
  expect(written).toEqual([]);
  await expect(section(page, "How far it got").getByRole("row", { name: "1 0 0 0 6 1" })).toBeVisible();
});

test("taps before the winner's differ from those after it", { tag: "@slow" }, async ({ service, region, openConsole }) => {
  const [won, early, late] = await service.drivers(3, region);
  const d = await service.dispatch(region, { opens_at: new Date(Date.now() + 3600_000).toISOString(), expires_at: new Date(Date.now() + 7200_000).toISOString() });
  await expect(service.accept(d.id, early!.token)).rejects.toThrow("NOT_OPEN_YET");
  service.move(d.id, "opens_at", 0);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(status(page)).toHaveText("PENDING");
  await service.accept(d.id, won!.token, 1);
  await expect(service.accept(d.id, late!.token, 1)).rejects.toThrow("ALREADY_TAKEN");
  await expect(page.getByText(/^3 taps by 3 drivers\. Driver 1 won, .* ahead of the next\.$/)).toBeVisible();
  const rows = page.getByRole("region", { name: "The taps" }).locator("tbody tr");
  await page.getByLabel("Axis").selectOption("linear");
  await expect(page.locator("svg.race .tap")).toHaveCount(3);
  await expect(rows.first()).toContainText("too early");
  await expect(rows.first().getByRole("cell").nth(3)).toHaveText("–");
  await expect(rows.nth(1)).toContainText("won");
  const { items } = await service.call("GET", `/v1/admin/dispatches/${d.id}/attempts`);
  expect(items[1].after_us).toBeGreaterThan(0); // so the distance to the winner differs from the distance to the first tap
  await expect(rows.last().getByRole("cell").nth(3)).toHaveText(`+${spanWords(items[2].after_us - items[1].after_us)}`);
});

test("the beginning of a race with a late tap has its own view", { tag: "@slow" }, async ({ openDispatch, service, region }) => {
  const drivers = await service.drivers(4, region);
  const { page, d } = await openDispatch();
  await page.route("**/attempts?**", (route) => route.fulfill({ json: {
    items: [0, 40, 100, 90_000_000].map((after_us, i) => ({
      id: `att_${String(i).repeat(26)}`, round: 1, driver_id: drivers[i]!.id, result: i === 1 ? "SUCCESS" : "ALREADY_TAKEN", at: d.opens_at, after_us,
      rank: [2, 1, 3, 4][i], reaction_ms: null, instance: null, app_version: null,
    })), next_cursor: null, server_time: new Date().toISOString(),
  } }));
  await expect(page.getByText("4 taps by 4 drivers. Driver 2 won, 60 µs ahead of the next.")).toBeVisible();
  await expect(page.getByRole("region", { name: "The taps" }).locator("tbody tr").first()).toContainText("40 µs before");
  await expect(page.locator("svg.race .axis text")).toContainText(["0", "1 ms", "1 s", "1:00 min"]);
  await page.getByLabel("Axis").selectOption("the first 100 µs (3 taps)");
  await expect(page.locator("svg.race .tap")).toHaveCount(3);
  await expect(page.locator("svg.race")).toContainText("+60 µs");
  await expect(page.locator("svg.race")).not.toContainText("1:30 min");
});

test("three hundred taps are drawn, and read in parts", { tag: "@slow" }, async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(300, region);
  const d = await service.dispatch(region);
  await service.acceptOnce(d.id, drivers);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(page.getByText(/^300 taps by 300 drivers\./)).toBeVisible();
  await expect(page.locator("svg.race .tap")).toHaveCount(300);
  const rows = page.getByRole("region", { name: "The taps" }).locator("tbody tr");
  await expect(rows).toHaveCount(50);
  await button(page, "More rows (250)").click();
  await expect(rows).toHaveCount(150);
  await section(page, "Who was told").getByRole("button", { name: "More" }).click();
  await expect(section(page, "Who was told").locator("tbody tr")).toHaveCount(150);
});

test("each round has its own race", { tag: "@slow" }, async ({ service, region, openConsole }) => {
  const [one, two] = await service.drivers(2, region);
  const d = await service.dispatch(region);
  await service.accept(d.id, one!.token, 1);
  await expect(service.accept(d.id, two!.token, 1)).rejects.toThrow("ALREADY_TAKEN");
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(page.getByText(/^2 taps by 2 drivers\. Driver 1 won/)).toBeVisible();
  await service.call("POST", `/v1/dispatches/${d.id}/withdraw`, { reason_code: "ILL" }, { token: one!.token });
  await expect(page.getByText("Nobody has tapped in round 2.")).toBeVisible();
  await service.accept(d.id, two!.token, 2);
  await expect(page.getByText("1 tap by 1 driver. Driver 2 won.")).toBeVisible();
  await page.getByRole("combobox", { name: "Round" }).selectOption("1");
  await expect(page.getByText(/^2 taps by 2 drivers\. Driver 1 won/)).toBeVisible();
  await expect(section(page, "Who was told").getByRole("row", { name: /Driver 1/ })).toContainText("WITHDRAWN");
  await expect(section(page, "Who was told").locator("tbody tr")).toHaveCount(2); // in this round
});

test("the notified drivers, their progress, and the pushes", { tag: "@slow" }, async ({ openDispatch, service, region }) => {
  const [one, two] = await service.drivers(2, region);
  await service.call("PUT", `/v1/me/devices/${region}`, { platform: "android", push_token: `token-${region}` }, { token: one!.token });
  const { page, d } = await openDispatch();
  const told = section(page, "Who was told");
  const push = section(page, "The pushes").getByRole("row", { name: /opened Driver 1 SENT 0 sent/ });
  await expect(push).toBeVisible();
  await service.call("POST", `/v1/dispatches/${d.id}/seen`, undefined, { token: one!.token });
  await service.call("POST", `/v1/dispatches/${d.id}/decline`, { reason_code: "TOO_FAR" }, { token: one!.token });
  await expect(told.getByRole("row", { name: /Driver 1 DECLINED .*too far/ })).toBeVisible();
  await service.call("POST", `/v1/dispatches/${d.id}/seen`, undefined, { token: two!.token });
  await expect(told.getByRole("row", { name: /Driver 2 SEEN/ })).toBeVisible(); // no event announces it
  await service.accept(d.id, two!.token, 1);
  await expect(section(page, "How far it got").getByRole("row", { name: "1 1 1 2 1 1" })).toBeVisible();
});

test("a number that is no longer known is not shown as zero", { tag: "@slow" }, async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole();
  await page.route("**/notifications?**", (route) => route.fulfill({ json: {
    items: [], next_cursor: null, server_time: new Date().toISOString(),
    funnel: [{ round: 1, told: null, accepted_by_fcm: null, seen: 3, tapped: 2, won: 1 }],
  } }));
  await page.evaluate((id) => { location.hash = `#/dispatches/${id}`; }, d.id);
  await expect(section(page, "How far it got").getByText("not known any more")).toHaveCount(2);
});

test("the page is readable on a narrow screen", { tag: "@slow" }, async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(5, region);
  const d = await service.dispatch(region);
  await service.acceptOnce(d.id, drivers);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await page.setViewportSize({ width: 400, height: 800 });
  await expect(page.locator("svg.race .tap")).toHaveCount(5);
  await accessible(page);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
});
