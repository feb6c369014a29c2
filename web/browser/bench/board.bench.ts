import { type Browser, type BrowserContext, type Page, expect, test } from "@playwright/test";
import { Service } from "../service.ts";
import { Load, countEvents } from "./load.ts";

const open = 500, rate = 50, rounds = 4, phase = 5000;

interface Frames { perSecond: number[]; intervals: number[]; longTasks: number[] }

/** Measures the page's frames for a while. */
function frames(page: Page, ms: number): Promise<Frames> {
  return page.evaluate((ms) => new Promise<Frames>((resolve) => {
    const longTasks: number[] = [], intervals: number[] = [], perSecond: number[] = Array.from({ length: ms / 1000 }, () => 0);
    const observer = new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((e) => e.duration)));
    observer.observe({ type: "longtask" });
    let began = 0, last = 0;
    requestAnimationFrame(function frame(t) {
      if (began) {
        if (t - began >= ms) {
          observer.disconnect();
          resolve({ perSecond, intervals, longTasks });
          return;
        }
        intervals.push(t - last);
        perSecond[Math.floor((t - began) / 1000)]!++;
      } else began = t;
      last = t;
      requestAnimationFrame(frame);
    });
  }), ms);
}

const sum = (of: number[]) => of.reduce((a, b) => a + b, 0);
const median = (of: number[]) => of.toSorted((a, b) => a - b)[Math.floor(of.length / 2)]!;
const join = (all: Frames[]): Frames => ({
  perSecond: all.flatMap((f) => f.perSecond), intervals: all.flatMap((f) => f.intervals), longTasks: all.flatMap((f) => f.longTasks),
});

function say(what: string, f: Frames): void {
  const slow = f.intervals.filter((ms) => ms > 20).length / f.intervals.length;
  console.log(`${what}: ${median(f.perSecond)} frames a second in the median, ${Math.min(...f.perSecond)} in the worst second; ` +
    `${(100 * slow).toFixed(1)} % over 20 ms, the longest ${Math.max(...f.intervals).toFixed(0)} ms; ` +
    `${f.longTasks.length} long tasks, ${sum(f.longTasks).toFixed(0)} ms in all`);
}

async function signedIn(browser: Browser, service: Service): Promise<BrowserContext> {
  const context = await browser.newContext();
  const response = await context.request.post(`${service.url}/v1/session`, { data: { key: service.adminKey }, headers: { Origin: service.url } });
  expect(response.ok(), await response.text()).toBe(true);
  return context;
}

/** Opens a page without a cache, and reports the bytes over the wire until it was quiet, and the time of the first paint. */
async function firstView(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage();
  const cdp = await context.newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.setCacheDisabled", { cacheDisabled: true });
  let bytes = 0, requests = 0, last = Date.now();
  cdp.on("Network.loadingFinished", (e) => {
    bytes += e.encodedDataLength;
    requests++;
    last = Date.now();
  });
  await page.goto(url);
  await expect.poll(() => Date.now() - last, { intervals: [100] }).toBeGreaterThan(800);
  const paint = await page.evaluate(() => Object.fromEntries(performance.getEntriesByType("paint").map((e) => [e.name, Math.round(e.startTime)])));
  console.log(`${new URL(url).pathname}${new URL(url).hash.split("=")[0]}: ${(bytes / 1000).toFixed(1)} KB in ${requests} requests; ` +
    `first paint ${paint["first-paint"]} ms, first contentful paint ${paint["first-contentful-paint"]} ms`);
  await cdp.detach();
  return page;
}

test("the board with 500 open dispatches and 50 events a second", async ({ browser }) => {
  const service = await new Service({ FIRSTTAP_RATE_LIMIT_DRIVER: "5000/s" }).start();
  try {
    const load = new Load(service, "seoul");
    await load.fill(open);
    console.log(`${open} open dispatches. First views:`);
    const context = await signedIn(browser, service);
    const [driver] = await service.drivers(1, "busan");
    for (const path of ["new", "drivers", "notifications", "jobs", "locks", "supply", "keys", "audit"]) {
      await (await firstView(context, `${service.url}/console/#/${path}`)).close();
    }
    await (await firstView(await browser.newContext(), `${service.url}/driver/#token=${driver!.token}`)).context().close();
    const page = await firstView(context, `${service.url}/console/#/board`);
    await expect(page.getByRole("heading", { name: `Pending ${open}` })).toBeVisible();

    const drawn = () => page.evaluate(async (module) => (await import(module)).drawn.cards as number, "/console/board.js");
    let requests = 0;
    page.on("request", () => requests++);
    const count = await countEvents(service);
    const quiet: Frames[] = [], loaded: Frames[] = [];
    let took = 0, cards = 0, asked = 0;
    for (let i = 0; i < rounds; i++) {
      quiet.push(await frames(page, phase));
      const before = [await drawn(), requests] as const;
      const [f, ms] = await Promise.all([frames(page, phase), load.run(rate, phase)]);
      loaded.push(f);
      took += ms;
      cards += await drawn() - before[0];
      asked += requests - before[1];
    }
    count.stop();
    console.log(`Load: ${load.made} changes in ${(took / 1000).toFixed(1)} s, ${(load.made / took * 1000).toFixed(1)} a second, ${load.refused.length} refused; ` +
      `${count.events()} events, ${(count.events() / took * 1000).toFixed(1)} a second; the board drew ${cards} cards and made ${asked} requests`);
    say("No events", join(quiet));
    say("Under load", join(loaded));
    console.log(`Ratio of the medians: ${(median(join(loaded).perSecond) / median(join(quiet).perSecond)).toFixed(3)}`);
    expect(load.refused.slice(0, 3)).toEqual([]);
    expect(sum(join(loaded).perSecond)).toBeGreaterThan(0);
  } finally {
    await service.close();
  }
});
