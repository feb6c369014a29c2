import { type Page, expect } from "@playwright/test";

/** Formats a time from now for the API. */
export const soon = (ms: number) => new Date(Date.now() + ms).toISOString();

/** Finds a column of the board by its name, and a card in it by its address. */
export const column = (page: Page, name: string) => page.getByRole("region", { name: new RegExp(`^${name} `) });
export const card = (page: Page, name: string, address: string) => column(page, name).getByRole("link", { name: address });

/** Expects the columns' counts, by the columns' names. */
export async function counted(page: Page, counts: Record<string, number | string>): Promise<void> {
  for (const [name, n] of Object.entries(counts)) await expect(page.getByRole("heading", { name: `${name} ${n}`, exact: true })).toBeVisible();
}

/**
 * Opens the board in a tab without a cache, and counts the bytes over the wire. An address counts once: a page whose stream connects
 * late reads its lists again.
 */
export async function firstView(signedIn: Page, url: string): Promise<{ page: Page; bytes: () => number; urls: () => string[] }> {
  const page = await signedIn.context().newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.setCacheDisabled", { cacheDisabled: true });
  const urls = new Map<string, string>(), sizes = new Map<string, number>();
  cdp.on("Network.requestWillBeSent", (e) => { urls.set(e.requestId, e.request.url); });
  cdp.on("Network.loadingFinished", (e) => { sizes.set(urls.get(e.requestId) ?? e.requestId, e.encodedDataLength); });
  await page.goto(`${url}/console/#/board`);
  return { page, bytes: () => [...sizes.values()].reduce((sum, n) => sum + n, 0), urls: () => [...sizes.keys()] };
}
