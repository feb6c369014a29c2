import type { Locator, Page } from "@playwright/test";
import type { Json, Service } from "./service.ts";

/** An offer or a job on the driver's page. */
export const card = (page: Page, site: string): Locator => page.getByRole("article", { name: site });

/** The button that accepts. */
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
