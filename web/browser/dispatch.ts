import type { Locator, Page } from "@playwright/test";

/** The parts of the page of a dispatch. */
export const status = (page: Page) => page.getByRole("status", { name: "State" });
export const news = (page: Page) => page.getByRole("status", { name: "Your change" });
export const button = (within: Page | Locator, name: string | RegExp) => within.getByRole("button", { name });
export const section = (page: Page, title: string) => page.getByRole("region", { name: title, exact: true });

/** Hides the page, so that it does not poll and only the stream updates it. */
export const lookAway = (page: Page) => page.evaluate(() => Object.defineProperty(document, "visibilityState", { get: () => "hidden" }));
