import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { type Page, expect, test } from "../fixtures.ts";
import { acceptTogether } from "../driver.ts";

const inSeoul = (hours: number) => new Date(Date.now() + (9 + hours) * 3600_000).toISOString().slice(0, 16);

test("one of two concurrent taps wins, and every page shows it", async ({ service, region, openConsole, openDriver }) => {
  const drivers = await service.drivers(2, region);
  const board = await openConsole(`#/board?region=${region}`);
  const phones = await Promise.all(drivers.map((d) => openDriver(d.token)));
  await Promise.all([board, ...phones].map((p) => p.evaluate(() => Object.assign(window, { neverReloaded: true }))));

  const office = await openConsole("#/new");
  await office.getByLabel("Region").fill(region);
  await office.getByLabel("Vehicle class").fill("45m");
  await office.getByLabel("Work starts").fill(inSeoul(48));
  await office.getByLabel("Work ends").fill(inSeoul(51));
  await office.getByLabel("Address").fill("152 Teheran-ro");
  await office.getByLabel("Fee", { exact: true }).fill("350000");
  await expect(office.getByRole("region", { name: "Who could take it" })).toContainText("2 eligible");
  await office.getByRole("button", { name: "Create dispatch" }).click();
  await expect(office.getByText("Nobody has tapped in round 1.")).toBeVisible();

  const offers = phones.map((p) => p.getByRole("article", { name: "152 Teheran-ro" }));
  const taps = offers.map((o) => o.getByRole("button", { name: "Accept" }));
  for (const tap of taps) await expect(tap).toBeEnabled();
  await expect(board.getByRole("region", { name: /^Pending / }).getByRole("link", { name: "152 Teheran-ro" })).toBeVisible();
  await acceptTogether(phones);

  for (const offer of offers) await expect(offer).toContainText(/Yours|Taken.*you were [\d.,]+ ms behind, at place 2/s);
  const said = await Promise.all(offers.map((o) => o.innerText()));
  expect(said.filter((s) => s.includes("Yours"))).toHaveLength(1);
  expect(said.filter((s) => s.includes("Taken"))).toHaveLength(1);
  const winner = drivers[said.findIndex((s) => s.includes("Yours"))]!;

  await expect(board.getByRole("region", { name: /^Accepted / }).getByRole("link", { name: "152 Teheran-ro" })).toContainText(winner.name);
  await expect(office.getByText(new RegExp(`^\\d+ taps by 2 drivers\\. ${winner.name} won`))).toBeVisible();
  const { items } = await service.call("GET", `/v1/admin/dispatches?region=${region}`);
  expect(items).toMatchObject([{ status: "ACCEPTED", accepted_by: winner.id }]);
  for (const page of [board, ...phones]) expect(await page.evaluate(() => "neverReloaded" in window)).toBe(true);
});

test("each role sees its actions, and the service enforces the role", { tag: "@slow" }, async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const links = (page: Page) => page.getByRole("navigation", { name: "Pages" }).getByRole("link").allInnerTexts();
  const change = (page: Page) => page.evaluate(async (id) => {
    const answer = await fetch(`/v1/admin/dispatches/${id}/cancel`, { method: "POST", headers: { "If-Match": '"1"' }, body: "{}" });
    return [answer.status, (await answer.json()).code];
  }, d.id);

  const viewer = await openConsole(`#/dispatches/${d.id}`, await service.key("viewer"));
  await expect(viewer.getByRole("status", { name: "State" })).toHaveText("PENDING");
  expect(await links(viewer)).toEqual(["Board", "Drivers", "Notifications", "Jobs", "Locks", "Supply"]);
  await expect(viewer.getByRole("button", { name: "Cancel" })).toHaveCount(0);
  expect(await change(viewer)).toEqual([403, "FORBIDDEN"]);
  await viewer.evaluate(() => { location.hash = "#/new"; });
  await expect(viewer.getByRole("heading", { name: "Board" })).toBeVisible();

  const dispatcher = await openConsole(`#/dispatches/${d.id}`, await service.key("dispatcher"));
  await expect(dispatcher.getByRole("button", { name: /^Cancel/ })).toBeVisible();
  expect(await links(dispatcher)).toEqual(["Board", "New dispatch", "Drivers", "Notifications", "Jobs", "Locks", "Supply"]);

  const admin = await openConsole();
  expect(await links(admin)).toEqual(expect.arrayContaining(["API keys", "Audit"]));
  expect((await service.read(d)).status).toBe("PENDING");
  expect(await change(dispatcher)).toEqual([200, undefined]);
});

// Another port of the same host is the same site: the browser sends the cookie in spite of SameSite.
test("a page of another origin can't use the session", async ({ service, region, openConsole }) => {
  const d = await service.dispatch(region);
  const page = await openConsole();
  const evil = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<!doctype html><title>Evil</title>"));
  evil.listen(0, "127.0.0.1");
  await once(evil, "listening");
  try {
    const other = await page.context().newPage();
    await other.goto(`http://127.0.0.1:${(evil.address() as AddressInfo).port}/`);
    const answered = other.waitForResponse((r) => r.url().endsWith("/cancel"));
    await other.evaluate((to) => fetch(to, { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }), `${service.url}/v1/admin/dispatches/${d.id}/cancel`);
    expect((await answered).status()).toBe(403); // without the cookie it would be 401
  } finally {
    evil.closeAllConnections();
    evil.close();
  }
  expect((await service.read(d)).status).toBe("PENDING");
});
