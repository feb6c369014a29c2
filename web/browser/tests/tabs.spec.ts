import type { Page } from "@playwright/test";
import { confirmLink, expect, test } from "../fixtures.ts";
import { card, column } from "../board.ts";
import { card as offer } from "../driver.ts";

/** Hides a tab or shows it again, as the browser does when another tab of its window is chosen. */
const look = (page: Page, state: "hidden" | "visible") => page.evaluate((now) => {
  Object.defineProperty(document, "visibilityState", { configurable: true, get: () => now });
  document.dispatchEvent(new Event("visibilitychange"));
}, state);

/** Counts the streams that a page has open. */
function streams(page: Page): () => number {
  const open = new Set<unknown>();
  page.on("response", (r) => { if (r.url().endsWith("/stream") && r.ok()) open.add(r.request()); });
  for (const end of ["requestfinished", "requestfailed"] as const) page.on(end as "requestfailed", (r) => open.delete(r));
  return () => open.size;
}

test("eight tabs of the console and the phones of two drivers have three streams, and each hears every event", async ({ openConsole, service, region }) => {
  const drivers = await service.drivers(2, region);
  const first = await openConsole(`#/board?region=${region}`);
  const context = first.context();
  const open = async (path: string) => {
    const page = await context.newPage();
    const count = streams(page);
    await page.goto(service.url + path);
    return { page, count };
  };
  const consoles = [{ page: first, count: streams(first) }];
  await first.reload();
  for (let n = 2; n <= 8; n++) consoles.push(await open(`/console/#/board?region=${region}`));
  const phones: typeof consoles = [];
  for (const driver of drivers) {
    const phone = await open(`/driver/#token=${driver.token}`);
    await confirmLink(phone.page);
    await expect(phone.page.getByText(driver.name, { exact: true })).toBeVisible();
    phones.push(phone);
  }
  const all = [...consoles, ...phones];
  const everyoneSees = async (site: string, tabs = consoles) => {
    for (const { page } of tabs) await expect(page.getByText("live", { exact: true })).toBeVisible();
    for (const { page } of phones) await expect(page.getByText("● Live")).toBeVisible();
    await service.dispatch(region, { site_address: site });
    for (const { page } of tabs) await expect(card(page, "Pending", site)).toBeVisible();
    for (const { page } of phones) await expect(offer(page, site)).toBeVisible();
  };
  const open3 = () => expect.poll(() => all.filter(({ page }) => !page.isClosed()).map(({ count }) => count()).filter((n) => n > 0)).toEqual([1, 1, 1]);
  await everyoneSees("1 Tab-ro");
  await open3();

  const leader = consoles.findIndex(({ count }) => count() === 1);
  await consoles[leader]!.page.close();
  const left = consoles.filter((_, i) => i !== leader);
  await everyoneSees("2 Tab-ro", left);

  const next = left.find(({ count }) => count() === 1)!;
  await look(next.page, "hidden");
  await look(left.find((tab) => tab !== next)!.page, "visible");
  await expect.poll(next.count).toBe(0);
  await everyoneSees("3 Tab-ro", left);
  await open3();
  await expect(column(left[0]!.page, "Pending").getByRole("link")).toHaveCount(3);
});

test("six phones of six drivers keep connections for requests, and a hidden one gives its stream to a visible one", async ({ openDriver, service, region }) => {
  const drivers = await service.drivers(6, region);
  const first = await openDriver(drivers[0]!.token);
  const phones = [{ page: first, count: streams(first) }];
  await first.reload();
  for (const driver of drivers.slice(1)) {
    const page = await first.context().newPage();
    phones.push({ page, count: streams(page) });
    await page.goto(`${service.url}/driver/#token=${driver.token}`);
    await confirmLink(page);
    await expect(page.getByText(driver.name, { exact: true })).toBeVisible();
  }
  await service.dispatch(region, { site_address: "1 Phone-ro" });
  for (const { page } of phones) await expect(offer(page, "1 Phone-ro")).toBeVisible();
  const open = () => phones.map(({ count }) => count());
  await expect.poll(() => open().filter((n) => n > 0)).toEqual([1, 1, 1, 1]);
  const has = phones.filter(({ count }) => count() === 1), lacks = phones.filter(({ count }) => count() === 0);
  for (const { page } of has.slice(0, 2)) await look(page, "hidden");
  await expect.poll(() => lacks.map(({ count }) => count())).toEqual([1, 1]);
  await look(lacks[0]!.page, "hidden");
  await look(has[0]!.page, "visible");
  await service.dispatch(region, { site_address: "2 Phone-ro" });
  await expect(offer(has[0]!.page, "2 Phone-ro")).toBeVisible();
});

test("where the browser has no Web Locks, a hidden tab closes its stream and catches up when it is shown", async ({ openConsole, service, region }) => {
  const page = await openConsole(`#/board?region=${region}`);
  const count = streams(page);
  await page.addInitScript(() => Object.defineProperty(navigator, "locks", { value: undefined }));
  await page.reload();
  await expect.poll(count).toBe(1);
  await look(page, "hidden");
  await expect.poll(count).toBe(0);
  await service.dispatch(region, { site_address: "1 Plain-ro" });
  await look(page, "visible");
  await expect(card(page, "Pending", "1 Plain-ro")).toBeVisible();
});

test("a tab that the browser has frozen loses the lead to the one that is shown", async ({ openConsole, service, region }) => {
  const frozen = await openConsole(`#/board?region=${region}`);
  const page = await frozen.context().newPage();
  const count = streams(page);
  await page.goto(frozen.url());
  await expect(page.getByText("live", { exact: true })).toBeVisible();
  expect(count()).toBe(0);
  const cdp = await frozen.context().newCDPSession(frozen);
  await look(frozen, "hidden");
  await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
  await look(page, "visible");
  await expect.poll(count).toBe(1);
  await service.dispatch(region, { site_address: "1 Ice-ro" });
  await expect(card(page, "Pending", "1 Ice-ro")).toBeVisible();
  await cdp.send("Page.setWebLifecycleState", { state: "active" });
});
