import { AxeBuilder } from "@axe-core/playwright";
import { type BrowserContext, type Locator, type Page, type Request, test as base, expect } from "@playwright/test";
import { randomBytes } from "node:crypto";
import { type Json, Service } from "./service.ts";

export { expect } from "@playwright/test";
export type { Page } from "@playwright/test";
export type { Service } from "./service.ts";

/**
 * Collects the faults of a page: a logged error, an exception, or a request to another host. Chromium also logs an error for a
 * refused request and for an unreachable service. The page shows those, and they are no faults.
 */
export function watch(context: BrowserContext): string[] {
  const faults: string[] = [];
  context.on("console", (message) => {
    const text = message.text();
    if (message.type() !== "error" || /^Failed to load resource: (net::ERR_|the server responded with a status of )/.test(text)) return;
    faults.push(`logged: ${text}`);
  });
  context.on("weberror", (e) => faults.push(`threw: ${e.error().stack ?? e.error()}`));
  context.on("request", (r) => {
    const { hostname, protocol } = new URL(r.url());
    if (protocol.startsWith("http") && hostname !== "127.0.0.1") faults.push(`asked ${r.url()}`);
  });
  context.on("response", (r) => {
    const { pathname } = new URL(r.url());
    if (r.status() >= 400 && !/^\/(v1|\w+\.googleapis\.com)\//.test(pathname)) faults.push(`${r.status()} for ${pathname}`);
  });
  return faults;
}

/** The requests of each page that are under way, without live streams. */
const underWay = new WeakMap<Page, Set<Request>>();

/** Keeps underWay for a page. */
function follow(page: Page): void {
  const requests = new Set<Request>();
  underWay.set(page, requests);
  page.on("request", (r) => { if (!r.url().endsWith("/stream")) requests.add(r); });
  page.on("requestfinished", (r) => requests.delete(r));
  page.on("requestfailed", (r) => requests.delete(r));
}

/** Waits until no request of the page is under way but its live stream. */
export async function idle(page: Page): Promise<void> {
  await page.evaluate(() => {}); // the event of each earlier request has arrived by then
  await expect.poll(() => [...underWay.get(page)!].map((r) => r.url())).toEqual([]);
}

/** Aborts the page's requests to url from now on. No earlier one, whose answer would show what comes next, is left when it returns. */
export async function cut(page: Page, url: string | RegExp): Promise<void> {
  await page.route(url, (route) => route.abort());
  await idle(page);
}

interface Worker {
  /** A service that a worker's tests share: each test works in its own region. */
  service: Service;
}

interface Test {
  /** The test's region. */
  region: string;
  /** The settings of own. */
  settings: Record<string, string>;
  /** A service for one test: one that it stops, that has settings, or whose numbers are of all regions. */
  own: Service;
  /** Opens a page in a new browser context, as another person, signed in if there is a key. */
  open: (path: string, service?: Service, key?: string) => Promise<Page>;
  /** Opens the console, signed in with a key, by default the first one. */
  openConsole: (hash?: string, key?: string, service?: Service) => Promise<Page>;
  /** Opens the driver's page with a driver's token. */
  openDriver: (token: string, service?: Service) => Promise<Page>;
  /** Opens the page of a new driver, who has one offer, at a site. */
  openOffer: (site: string) => Promise<{ page: Page; driver: Json; job: Json }>;
  /** Opens the console's page of a new dispatch. */
  openDispatch: (more?: Json, key?: string) => Promise<{ page: Page; d: Json }>;
}

export const test = base.extend<Test, Worker>({
  service: [async ({}, use) => {
    const service = await new Service().start();
    await use(service);
    await service.close();
  }, { scope: "worker" }],
  settings: [{}, { option: true }],
  own: async ({ settings }, use) => {
    const own = await new Service(settings).start();
    await use(own);
    await own.close();
  },
  region: async ({}, use) => use(`region-${randomBytes(4).toString("hex")}`),
  open: async ({ browser, service, contextOptions }, use) => {
    const opened: { context: BrowserContext; faults: string[] }[] = [];
    await use(async (path, at = service, key) => {
      const context = await browser.newContext(contextOptions);
      opened.push({ context, faults: watch(context) });
      context.on("page", follow);
      if (key) expect((await context.request.post(at.url + "/v1/session", { data: { key } })).status()).toBe(200);
      const page = await context.newPage();
      // Playwright does not report a request that is sent while the first route is being set up, and idle would not wait for it.
      await page.route("**/never", (route) => route.fallback());
      await page.goto(at.url + path);
      return page;
    });
    for (const { context } of opened) {
      for (const page of context.pages()) await page.unrouteAll({ behavior: "ignoreErrors" }); // a page's next poll may be in its handler
      await context.close();
    }
    expect(opened.flatMap((o) => o.faults)).toEqual([]);
  },
  openConsole: async ({ open, service }, use) => use(async (hash = "#/board", key, at = service) => {
    const page = await open("/console/" + hash, at, key ?? at.adminKey);
    await expect(page.getByRole("button", { name: /^(Sign out|로그아웃)$/ })).toBeVisible();
    return page;
  }),
  openDriver: async ({ open, service }, use) => use(async (token, at = service) => {
    const page = await open(`/driver/#token=${token}`, at);
    await confirmLink(page);
    return page;
  }),
  openOffer: async ({ openDriver, service, region }, use) => use(async (site) => {
    const [driver] = await service.drivers(1, region);
    const job = await service.dispatch(region, { site_address: site });
    return { page: await openDriver(driver!.token), driver, job };
  }),
  openDispatch: async ({ openConsole, service, region }, use) => use(async (more, key) => {
    const d = await service.dispatch(region, more);
    return { page: await openConsole(`#/dispatches/${d.id}`, key), d };
  }),
});

/** Signs in with the link that the page was opened with. */
export const confirmLink = (page: Page): Promise<void> => page.getByRole("button", { name: /^(Sign in with the link|링크로 로그인)$/ }).click();

/** Gives the page a clock that a test moves with page.clock, and loads the page again. */
export async function ownClock(page: Page): Promise<void> {
  await page.clock.install();
  await page.reload();
}

/** Moves the focus to a control with the Tab key, from where the focus is. */
export async function tabTo(control: Locator): Promise<void> {
  await expect(control).toBeVisible();
  for (let n = 0; n < 40 && !(await control.evaluate((e) => e === document.activeElement)); n++) await control.page().keyboard.press("Tab");
  await expect(control).toBeFocused();
}

/** Makes the page's requests to url wait until the returned function is called. */
export async function hold(page: Page, url: string | RegExp, options?: { times: number }): Promise<() => void> {
  let release = () => {};
  const released = new Promise<void>((resolve) => { release = resolve; });
  await page.route(url, async (route) => {
    await released;
    await route.continue();
  }, options);
  return release;
}

/** Delivers the page's requests to url, and loses the answers. */
export async function loseAnswers(page: Page, url: string | RegExp, options: { times?: number; method?: string } = {}): Promise<void> {
  await page.route(url, async (route) => {
    if (options.method && route.request().method() !== options.method) return route.fallback();
    await route.fetch();
    await route.abort("connectionreset");
  }, { times: options.times });
}

// FIRSTTAP_TEST=all looks at the dark colors too.
const colors = process.env.FIRSTTAP_TEST === "all" ? ["dark", "light"] as const : ["light"] as const;

/** Fails on violations that axe classifies as serious or critical. */
export async function accessible(page: Page): Promise<void> {
  for (const colorScheme of colors) {
    await page.emulateMedia({ colorScheme });
    // The pages have no frames of others, so axe needs no second page to gather the results.
    const { violations } = await new AxeBuilder({ page }).setLegacyMode(true).options({ resultTypes: ["violations"] }).analyze();
    const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
    expect(serious.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), colorScheme).toEqual([]);
  }
}
