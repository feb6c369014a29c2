import { type Page, expect } from "@playwright/test";
import type { Json, Service } from "./service.ts";

/** Formats a time from now for the API. */
export const soon = (ms: number) => new Date(Date.now() + ms).toISOString();

/** Finds a column of the board by its name, and a card in it by its address. */
export const column = (page: Page, name: string) => page.getByRole("region", { name: new RegExp(`^${name} `) });
export const card = (page: Page, name: string, address: string) => column(page, name).getByRole("link", { name: address });

/** Expects the columns' counts, by the columns' names. */
export async function counted(page: Page, counts: Record<string, number | string>): Promise<void> {
  for (const [name, n] of Object.entries(counts)) await expect(page.getByRole("heading", { name: `${name} ${n}`, exact: true })).toBeVisible();
}

/** Changes a dispatch at its version. */
export function change(service: Service, d: Json, what: string, body: Json = {}): Promise<Json> {
  return service.call("POST", `/v1/admin/dispatches/${d.id}/${what}`, body, { headers: { "If-Match": `"${d.version}"` } });
}
