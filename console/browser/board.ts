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
