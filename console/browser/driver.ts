import type { Locator, Page } from "@playwright/test";
import type { Json, Service } from "./service.ts";

/** An offer or a job on the driver's page. */
export const card = (page: Page, site: string): Locator => page.getByRole("article", { name: site });

/**
 * The button that accepts. press("Enter") taps it at once. click() waits until the button stands still, and the page drops a
 * click on one that has just moved: it is for the tests of that.
 */
export const accept = (where: Page | Locator): Locator => where.getByRole("button", { name: "Accept", exact: true });

/** Counts the requests that a page sends to addresses that end so. */
export function count(page: Page, end: string): () => number {
  let n = 0;
  page.on("request", (r) => { if (r.url().endsWith(end)) n++; });
  return () => n;
}

/** The taps that the service has written down. */
export const attempts = async (service: Service, id: string): Promise<Json[]> =>
  (await service.call("GET", `/v1/admin/dispatches/${id}/attempts`)).items;

/** Does to a dispatch, as the backoffice, what needs its version. */
export const change = (service: Service, { id, version }: Json, what: string, body: Json): Promise<Json> =>
  service.call("POST", `/v1/admin/dispatches/${id}/${what}`, body, { headers: { "If-Match": `"${version}"` } });

/** Taps Accept on each phone, where there is one offer, and lets the taps go out when all have been made. */
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
  await Promise.all(phones.map((p) => accept(p).click()));
}
