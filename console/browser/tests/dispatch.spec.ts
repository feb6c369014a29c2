import type { Locator } from "@playwright/test";
import { type Page, type Service, accessible, expect, test } from "../fixtures.ts";

const status = (page: Page) => page.getByRole("status", { name: "State" });
const news = (page: Page) => page.getByRole("status", { name: "Your change" });
const button = (within: Page | Locator, name: string | RegExp) => within.getByRole("button", { name });
const section = (page: Page, title: string) => page.getByRole("region", { name: title, exact: true });
const patch = (service: Service, d: any, body: object) =>
  service.call("PATCH", `/v1/admin/dispatches/${d.id}`, body, { headers: { "If-Match": `"${d.version}"` } });
const change = (service: Service, d: any, what: string, body: object = {}) =>
  service.call("POST", `/v1/admin/dispatches/${d.id}/${what}`, body, { headers: { "If-Match": `"${d.version}"` } });
const read = (service: Service, d: any) => service.call("GET", `/v1/admin/dispatches/${d.id}`);
const events = async (service: Service, d: any): Promise<any[]> => (await service.call("GET", `/v1/admin/dispatches/${d.id}/events`)).items;

/** A time below a second, as the page says it. */
const spanWords = (us: number) => (us < 1000 ? `${us} µs` : `${Number((us / 1000).toPrecision(3))} ms`);

/** What a datetime-local field has for a moment; the browser is in Seoul. */
const local = (ms: number) => new Date(ms + 9 * 3600_000).toISOString().slice(0, 19);

/** Leaves the page nothing but the stream to hear by: who does not look is not polled for. */
const lookAway = (page: Page) => page.evaluate(() => Object.defineProperty(document, "visibilityState", { get: () => "hidden" }));

test("a race of ten shows as it was, without reloading", async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(10, region);
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(page.getByText("Nobody has tapped in round 1.")).toBeVisible();
  await expect(page.getByText("live", { exact: true })).toBeVisible();

  const [first, ...others] = drivers;
  const winner = await service.accept(d.id, first!.token, 1);
  expect(winner.result).toBe("SUCCESS");
  await Promise.allSettled(others.map((v) => service.accept(d.id, v.token, 1)));

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

test("taps that are written down behind the answer come by themselves", async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(6, region);
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(page.getByText("Nobody has tapped in round 1.")).toBeVisible();
  await lookAway(page);
  const written = [0, 1, 3];
  await page.route("**/attempts?**", async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    const n = body.items.length > 0 ? written.shift() : undefined;
    await route.fulfill({ response, json: n === undefined ? body : { ...body, items: body.items.slice(0, n) } });
  });
  await Promise.allSettled(drivers.map((v) => service.accept(d.id, v.token, 1)));
  await expect(page.getByText(/^6 taps by 6 drivers\./)).toBeVisible();
  expect(written).toEqual([]);
});

test("taps that came before the winner's are told from those behind it", async ({ service, region, openConsole }) => {
  const [won, early, late] = await service.drivers(3, region);
  const d = await service.dispatch(region, { opens_at: new Date(Date.now() + 4000).toISOString() });
  await expect(service.accept(d.id, early!.token)).rejects.toThrow("NOT_OPEN_YET");
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
  expect(items[1].after_us).toBeGreaterThan(0); // so that behind the winner is not after the first tap
  await expect(rows.last().getByRole("cell").nth(3)).toHaveText(`+${spanWords(items[2].after_us - items[1].after_us)}`);
});

test("the beginning of a race with a late tap can be looked at by itself", async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(4, region);
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
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

test("three hundred taps are drawn, and read a piece at a time", async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(300, region);
  const d = await service.dispatch(region);
  await Promise.allSettled(drivers.map((v) => service.accept(d.id, v.token, 1)));
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

test("cancel, by the keyboard alone", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`, await service.key("dispatcher"));
  const cancel = button(page, "Cancel…");
  await expect(cancel).toBeVisible();
  for (let i = 0; i < 40 && !(await cancel.evaluate((b) => b === document.activeElement)); i++) await page.keyboard.press("Tab");
  await expect(cancel).toBeFocused();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Cancel this dispatch?" });
  await expect(dialog).toBeVisible();
  await accessible(page);
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await expect(cancel).toBeFocused();
  expect((await read(service, d)).status).toBe("PENDING");
  await page.keyboard.press("Enter");
  await expect(dialog.getByLabel("Reason (optional)")).toBeFocused();
  await page.keyboard.type("NO_LONGER_NEEDED");
  await page.keyboard.press("Tab");
  await expect(button(dialog, "Cancel the dispatch")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(news(page)).toHaveText("Canceled.");
  await expect(status(page)).toHaveText("CANCELED");
  await expect(page.getByRole("group", { name: "Actions" })).toBeFocused();
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText(/canceled.*NO_LONGER_NEEDED.*you/);
  expect((await events(service, d)).filter((e) => e.type === "dispatch.canceled").map((e) => e.reason_code)).toEqual(["NO_LONGER_NEEDED"]);
});

test("who is second to change it is told who was first, and may still do it", async ({ service, region, openConsole }) => {
  const [driver] = await service.drivers(1, region);
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await button(page, "Cancel…").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason (optional)").fill("MINE");
  await lookAway(page);
  await service.accept(d.id, driver!.token, 1);
  await expect(status(page)).toHaveText("ACCEPTED"); // what is on the screen moves; what was asked about does not
  await button(dialog, "Cancel the dispatch").click();
  await expect(dialog.getByRole("alert").first()).toContainText("Someone else changed it first. It was accepted by Driver 1.");
  await expect(dialog.getByRole("alert").first()).toContainText("Now it is ACCEPTED in round 1.");
  await expect(dialog.getByLabel("Reason (optional)")).toHaveValue("MINE");
  await accessible(page);
  expect((await read(service, d)).status).toBe("ACCEPTED");
  await button(dialog, "Cancel the dispatch").click();
  await expect(news(page)).toHaveText("Canceled.");
  await expect(status(page)).toHaveText("CANCELED");
  expect((await events(service, d)).at(-1)).toMatchObject({ type: "dispatch.canceled", reason_code: "MINE" });
});

test("what its state no longer allows is refused in words", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await button(page, "Extend…").click();
  const dialog = page.getByRole("dialog");
  await change(service, d, "cancel", { reason_code: "THEIRS" });
  await button(dialog, "Extend").click();
  await expect(dialog.getByRole("alert").first()).toContainText("(THEIRS)");
  await button(dialog, "Extend").click();
  await expect(dialog.getByText("That can't be done in its present state: not possible while the dispatch is CANCELED.")).toBeVisible();
  await button(dialog, "Back").click();
  await expect(page.getByText("Nothing more can be done to it.")).toBeVisible();
});

test("extend", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await button(page, "Extend…").click();
  const dialog = page.getByRole("dialog", { name: "Let it stand longer" });
  await accessible(page);
  const end = dialog.getByLabel("New end (your time)");
  await expect(end).toHaveValue(local(Date.parse(d.expires_at) + 600_000));
  await button(dialog, "30 min more").click();
  await expect(end).toHaveValue(local(Date.parse(d.expires_at) + 2400_000));
  await end.fill(local(Date.parse(d.expires_at) - 60_000));
  await button(dialog, "Extend").click();
  await expect(dialog.getByRole("alert").filter({ hasText: "expires_at" })).toBeVisible();
  const until = Date.parse(d.expires_at) + 3600_000;
  await end.fill(local(until));
  await button(dialog, "Extend").click();
  await expect(news(page)).toHaveText("Extended.");
  await expect(page.getByText("expires in 1:0")).toBeVisible();
  const after = await read(service, d);
  expect(Date.parse(after.expires_at)).toBe(Math.floor(until / 1000) * 1000);
  expect(after).toMatchObject({ round: 1, version: 2 });
});

test("it expires before one's eyes, and is opened again", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region, { expires_at: new Date(Date.now() + 3000).toISOString() });
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(page.getByText("expires in")).toBeVisible();
  await expect(status(page)).toHaveText("EXPIRED");
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText("expired");
  await expect(button(page, "Extend…")).toBeHidden();
  await button(page, "Reopen…").click();
  const dialog = page.getByRole("dialog", { name: "Open it again" });
  await accessible(page);
  await dialog.getByLabel(/^Until/).fill(local(Date.now() + 1200_000));
  await button(dialog, "Reopen").click();
  await expect(news(page)).toContainText("Reopened");
  await expect(status(page)).toHaveText("PENDING");
  expect(await read(service, d)).toMatchObject({ status: "PENDING", round: 2 });
});

test("assign and unassign", async ({ service, region, openConsole }) => {
  const [away] = await service.drivers(1, region, { name: `Away ${region}`, on_duty: false });
  const [small] = await service.drivers(1, region, { name: `Small ${region}`, vehicle_class: "28m" });
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`, await service.key("dispatcher"));
  await button(page, "Assign…").click();
  const dialog = page.getByRole("dialog", { name: "Give it to a driver" });
  await expect(dialog.getByRole("radio")).toHaveCount(1); // who has such a vehicle there
  await expect(button(dialog, "Assign")).toBeDisabled();
  await dialog.getByLabel(/^Find a driver/).fill(`small ${region}`);
  await dialog.getByRole("radio", { name: small!.name }).check();
  await accessible(page);
  await button(dialog, `Assign to ${small!.name}`).click();
  await expect(dialog.getByText("This driver can't take it: has another class of vehicle.")).toBeVisible();
  await dialog.getByLabel(/^Find a driver/).fill(away!.id);
  await dialog.getByRole("radio", { name: away!.name }).check();
  await button(dialog, `Assign to ${away!.name}`).click();
  await expect(news(page)).toHaveText(`Assigned to ${away!.name}.`);
  await expect(status(page)).toHaveText("ACCEPTED");
  await expect(page.getByText(`${away!.name} since `)).toBeVisible();
  await expect(section(page, "What happened").locator("tbody tr").first()).toContainText(`assigned ${away!.name}`);

  await button(page, "Unassign…").click();
  await page.getByLabel("Reason (optional)").fill("ILL");
  await accessible(page);
  await button(page.getByRole("dialog"), "Unassign").click();
  await expect(news(page)).toContainText("Unassigned");
  await expect(status(page)).toHaveText("PENDING");
  expect(await read(service, d)).toMatchObject({ status: "PENDING", round: 2 });
  expect((await events(service, d)).find((e) => e.type === "dispatch.unassigned").reason_code).toBe("ILL");
});

test("other terms are a new round, and only what was changed is sent", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region, { note: "Gate 1", site_lat: 37.4979, site_lng: 127.0276 });
  const page = await openConsole(`#/dispatches/${d.id}`);
  await button(page, "Edit terms…").click();
  const dialog = page.getByRole("dialog", { name: "Edit the terms" });
  await expect(dialog.getByText("Changed terms are a new round.")).toBeVisible();
  await expect(button(dialog, "Change the terms")).toBeDisabled();
  await accessible(page);
  await dialog.getByLabel("Fee", { exact: true }).fill("399999.5");
  await button(dialog, "Change the terms").click();
  await expect(dialog.getByText("The fee must be a whole number like 350000.")).toBeVisible(); // and is not rounded
  await dialog.getByLabel("Fee", { exact: true }).fill("400000");
  await patch(service, d, { note: "Gate 2" });
  await button(dialog, "Change the terms").click();
  await expect(dialog.getByRole("alert").first()).toContainText("It has changed meanwhile, by your own key. It was changed by you.");
  await expect(dialog.getByLabel("Fee", { exact: true })).toHaveValue("400000");
  await button(dialog, "Change the terms").click();
  await expect(news(page)).toContainText("it is a new round");
  expect(await read(service, d)).toMatchObject({ round: 3, note: "Gate 2", fee: { amount: 400000, currency: "KRW" } });
  await expect(page.getByText("₩400,000")).toBeVisible();
});

test("each round has its own race", async ({ service, region, openConsole }) => {
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
});

test("who was told, how far it got, and what was pushed", async ({ service, region, openConsole }) => {
  const [one, two] = await service.drivers(2, region);
  await service.call("PUT", `/v1/me/devices/${region}`, { platform: "android", push_token: `token-${region}` }, { token: one!.token });
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  const told = section(page, "Who was told");
  const push = section(page, "The pushes").getByRole("row", { name: /opened Driver 1 SENT 0 sent/ });
  await expect(push).toBeVisible();
  await service.call("POST", `/v1/dispatches/${d.id}/seen`, undefined, { token: one!.token });
  await service.call("POST", `/v1/dispatches/${d.id}/decline`, { reason_code: "TOO_FAR" }, { token: one!.token });
  await expect(told.getByRole("row", { name: /Driver 1 DECLINED .*TOO_FAR/ })).toBeVisible();
  await service.call("POST", `/v1/dispatches/${d.id}/seen`, undefined, { token: two!.token });
  await expect(told.getByRole("row", { name: /Driver 2 SEEN/ })).toBeVisible(); // no event tells of it
  await service.accept(d.id, two!.token, 1);
  await expect(section(page, "How far it got").getByRole("row", { name: "1 1 1 2 1 1" })).toBeVisible();
});

test("what is not known any more is not called nought", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole();
  await page.route("**/notifications?**", (route) => route.fulfill({ json: {
    items: [], next_cursor: null, server_time: new Date().toISOString(),
    funnel: [{ round: 1, told: null, accepted_by_fcm: null, seen: 3, tapped: 2, won: 1 }],
  } }));
  await page.evaluate((id) => { location.hash = `#/dispatches/${id}`; }, d.id);
  await expect(section(page, "How far it got").getByText("not known any more")).toHaveCount(2);
});

test("a viewer looks and has nothing to press", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`, await service.key("viewer"));
  await expect(status(page)).toHaveText("PENDING");
  await expect(section(page, "What happened").locator("tbody tr")).toHaveCount(1);
  for (const name of ["Cancel…", "Extend…", "Assign…", "Edit terms…"]) await expect(button(page, name)).toHaveCount(0);
});

test("what is not known is said so, and is found out", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await button(page, "Cancel…").click();
  const dialog = page.getByRole("dialog");
  await page.context().setOffline(true);
  await button(dialog, "Cancel the dispatch").click();
  await expect(dialog.getByText("It is not known whether this was done")).toBeVisible();
  await expect(page.getByText("cut off: what you see may be old")).toBeAttached();
  await page.context().setOffline(false);
  await expect(dialog.getByText("Your change is not made so far")).toBeVisible();
  await button(dialog, "Cancel the dispatch").click();
  await expect(news(page)).toHaveText("Canceled.");
  expect((await events(service, d)).filter((e) => e.type === "dispatch.canceled")).toHaveLength(1);
});

test("a change whose answer is lost is found to be done, once", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  let sent = 0;
  await page.route("**/cancel", async (route) => { // the request arrives, its answer does not
    sent++;
    await route.fetch();
    await page.context().setOffline(true);
    await route.abort("connectionreset");
  });
  await button(page, "Cancel…").click();
  await button(page.getByRole("dialog"), "Cancel the dispatch").click();
  await expect(page.getByRole("dialog").getByText("It is not known whether this was done")).toBeVisible();
  await button(page.getByRole("dialog"), "Back").click();
  await expect(news(page)).toContainText("It is not known whether your change was made");
  await page.context().setOffline(false);
  await expect(news(page)).toHaveText("The service can be reached again: Canceled.");
  await expect(status(page)).toHaveText("CANCELED");
  expect(sent).toBeGreaterThan(0);
  expect((await events(service, d)).filter((e) => e.type === "dispatch.canceled")).toHaveLength(1);
});

test("what is not there is said so", async ({ openConsole }) => {
  for (const id of ["dsp_00000000000000000000000000", "nonsense"]) {
    const page = await openConsole(`#/dispatches/${id}`);
    await expect(page.getByRole("heading", { name: "No such dispatch" })).toBeVisible();
    await expect(page.getByText(id)).toBeVisible();
    await accessible(page);
  }
});

test("it can be read in the dark and on a narrow screen", async ({ service, region, openConsole }) => {
  const drivers = await service.drivers(5, region);
  const d = await service.dispatch(region);
  await Promise.allSettled(drivers.map((v) => service.accept(d.id, v.token, 1)));
  const page = await openConsole(`#/dispatches/${d.id}`);
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 400, height: 800 });
  await expect(page.locator("svg.race .tap")).toHaveCount(5);
  await accessible(page);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
});

test("that it is cut off is said once, and what was shown stays", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole(`#/dispatches/${d.id}`);
  await expect(section(page, "What happened").locator("tbody tr")).toHaveCount(1);
  await page.context().setOffline(true);
  await expect(page.getByText("cut off: what you see may be old")).toBeVisible();
  await expect(page.getByText("The service can't be reached. What you see may be old.")).toBeVisible();
  await expect(page.getByText(/can't be reached/)).toHaveCount(1);
  await expect(section(page, "What happened").locator("tbody tr")).toHaveCount(1);
  await change(service, d, "cancel");
  await page.context().setOffline(false);
  await expect(status(page)).toHaveText("CANCELED");
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  await expect(page.getByText(/can't be reached/)).toHaveCount(0);
});
