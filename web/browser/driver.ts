import { type Locator, type Page, expect } from "@playwright/test";
import type { Json, Service } from "./service.ts";

/** An offer or a job on the driver's page. */
export const card = (page: Page, site: string): Locator => page.getByRole("article", { name: site });

/** The button that accepts. The page ignores a click on a button that has just moved: only the tests of that click it. */
export const accept = (where: Page | Locator): Locator => where.getByRole("button", { name: "Accept", exact: true });

/** Accepts the only offer there, with a key. */
export const tap = (where: Page | Locator): Promise<void> => accept(where).press("Enter");

/** Makes a dispatch, and returns it when the page has reported it as seen. */
export async function seen(page: Page, service: Service, region: string, site: string): Promise<Json> {
  const reported = page.waitForResponse((r) => r.url().endsWith("/seen"));
  const made = await service.dispatch(region, { site_address: site });
  await card(page, site).scrollIntoViewIfNeeded();
  await reported;
  return made;
}

/** Waits until the page has stored a text among what it knows, which it does when it has read everything. */
export async function stored(page: Page, text: string): Promise<void> {
  await expect.poll(() => page.evaluate(() => localStorage.getItem("firsttap.driver") ?? "")).toContain(text);
}

/** Counts a page's requests to addresses with this end, without those that a busy service asks to be repeated. */
export function count(page: Page, end: string): () => number {
  let n = 0;
  page.on("request", (r) => { if (r.url().endsWith(end)) n++; });
  page.on("response", (r) => { if (r.url().endsWith(end) && r.status() === 503) n--; });
  return () => n;
}

/** Returns the taps that the service has written, without those that it was too busy to decide. */
export const attempts = async (service: Service, id: string): Promise<Json[]> =>
  (await service.call("GET", `/v1/admin/dispatches/${id}/attempts`)).items.filter((a: Json) => a.result !== "CLAIM_UNAVAILABLE");

/** Taps Accept on each phone, which has one offer, and sends all the requests together. */
export async function acceptTogether(phones: Page[]): Promise<void> {
  let tapped = 0, start = () => {};
  const gate = new Promise<void>((resolve) => { start = resolve; });
  for (const p of phones) {
    await p.route("**/accept", async (route) => {
      if (++tapped === phones.length) start();
      await gate;
      await route.fallback();
    });
  }
  await Promise.all(phones.map((p) => tap(p)));
}
