import { card, soon } from "../board.ts";
import { type Page, accessible, expect, idle, test } from "../fixtures.ts";
import { languages, textsOf } from "../language.ts";
import type { Json, Service } from "../service.ts";

interface Heard { shown: { title: string; body?: string; lang: string; silent: boolean; click: () => void }[]; tones: number }

/** Notes the notifications and the tones of each page that is loaded in the context from now on. */
async function listen(page: Page): Promise<void> {
  await page.context().addInitScript(() => {
    const heard: Heard = { shown: [], tones: 0 };
    Object.assign(window, { heard, Notification: class extends Notification {
      constructor(title: string, options: NotificationOptions) {
        super(title, options);
        heard.shown.push({ title, body: options.body, lang: options.lang!, silent: options.silent!, click: () => this.onclick!(new Event("click")) });
      }
    } });
    const { start } = OscillatorNode.prototype;
    OscillatorNode.prototype.start = function (when) { heard.tones++; start.call(this, when); };
  });
  await page.reload();
}

const shown = (page: Page) => page.evaluate(() => (window as any).heard.shown.map((n: Json) => [n.title, n.body]) as [string, string?][]);
const tones = (page: Page) => page.evaluate(() => (window as any).heard.tones as number);
const toggle = (page: Page, name: string) => page.getByRole("button", { name, exact: true });

/** Turns alerts on, in a browser that allows notifications. */
async function turnOn(page: Page, t: Json): Promise<void> {
  await page.context().grantPermissions(["notifications"]);
  await listen(page);
  await toggle(page, t.alerts.off).click();
  await expect(toggle(page, t.alerts.on)).toBeVisible();
  await expect.poll(() => tones(page)).toBe(3); // so the sound is known from then on
  await expect.poll(() => page.evaluate(() => localStorage.getItem("firsttap.alerts.at"))).not.toBeNull(); // it has looked
  await idle(page);
}

/** Lets nobody see a dispatch for a minute. */
function ignore(service: Service, d: Json): void {
  const then = (Date.now() - 70_000) * 1000;
  service.sql("UPDATE dispatches SET opens_at = ?, updated_at = ? WHERE id = ?", [then, then, d.id]);
}

/** Lets a dispatch expire. */
async function expire(service: Service, d: Json): Promise<void> {
  service.move(d.id, "expires_at", -1000);
  await service.call("POST", "/v1/admin/jobs/expire-offers/run");
  await expect.poll(async () => (await service.events(d)).map((e) => e.type)).toContain("dispatch.expired");
}

for (const { lang, locale, tag } of languages) {
  test.describe(lang, { tag }, () => {
    test.use({ locale });
    test("an unseen and an expired dispatch are alerted to once in each round, on any page", { tag: "@slow" }, async ({ own: service, openConsole, region }) => {
      const t = await textsOf("console", lang);
      const page = await openConsole("#/jobs", await service.key("viewer"), service);
      await turnOn(page, t);
      await accessible(page);
      await page.clock.install();
      await page.reload();
      await expect(toggle(page, t.alerts.on)).toBeVisible(); // it is kept
      await idle(page);

      const d = await service.dispatch(region, { site_address: "서울 강남구 테헤란로 1" });
      const body = `서울 강남구 테헤란로 1 · ${region} · 45m`;
      ignore(service, d);
      await page.clock.fastForward(10_000);
      await expect.poll(() => shown(page)).toEqual([[t.alerts.kinds.unseen, body]]);
      await expire(service, d);
      await expect.poll(() => shown(page)).toEqual([[t.alerts.kinds.unseen, body], [t.alerts.kinds.expired, body]]);
      const next = await service.change(await service.read(d), "reopen", { expires_at: soon(600_000) }); // or it might end during the test
      ignore(service, next);
      await page.clock.fastForward(10_000);
      await expect.poll(() => shown(page)).toEqual([[t.alerts.kinds.unseen, body], [t.alerts.kinds.expired, body], [t.alerts.kinds.unseen, `${body} · ${t.round(2)}`]]);

      // Neither time nor a reload repeats an alert: the next one is the only one.
      await page.reload();
      await idle(page);
      await page.clock.fastForward(10_000);
      await idle(page);
      const other = await service.dispatch(region, { site_address: "2 Other-ro" });
      ignore(service, other);
      await page.clock.fastForward(10_000);
      await expect.poll(() => shown(page)).toEqual([[t.alerts.kinds.unseen, `2 Other-ro · ${region} · 45m`]]);
      await page.evaluate(() => (window as any).heard.shown[0].click());
      await expect(page).toHaveURL(new RegExp(`#/dispatches/${other.id}$`));

      await toggle(page, t.alerts.on).click();
      await expect(toggle(page, t.alerts.off)).toBeVisible();
      ignore(service, await service.dispatch(region));
      await page.clock.fastForward(30_000);
      await idle(page);
      expect(await shown(page)).toHaveLength(1);
      await page.reload();
      await expect(toggle(page, t.alerts.off)).toBeVisible();
    });

    test("alerts stay off when the browser blocks notifications, and say why", { tag: "@slow" }, async ({ openConsole }) => {
      const t = await textsOf("console", lang);
      const page = await openConsole("#/board");
      const asked = await page.evaluateHandle(() => {
        const asked: string[] = [];
        const request = Notification.requestPermission;
        Notification.requestPermission = async () => { asked.push("asked"); return request.call(Notification); };
        return asked;
      });
      await expect(toggle(page, t.alerts.off)).toBeVisible();
      expect(await asked.jsonValue()).toEqual([]); // nobody is asked without pressing
      await toggle(page, t.alerts.off).click();
      await expect(page.getByText(t.alerts.blocked)).toBeVisible();
      expect(await asked.jsonValue()).toEqual(["asked"]);
      await expect(toggle(page, t.alerts.off)).toBeVisible();
      await accessible(page);
      expect(Object.keys(await page.evaluate(() => ({ ...localStorage })))).toEqual(["firsttap.timezone"]);
    });
  });
}

test("several open tabs alert once, and another one goes on when the first is closed", { tag: "@slow" }, async ({ own: service, openConsole, region }) => {
  const en = await textsOf("console", "en");
  const page = await openConsole("#/board", undefined, service);
  await turnOn(page, en);
  const second = await page.context().newPage(), third = await page.context().newPage();
  for (const tab of [second, third]) {
    await tab.goto(`${service.url}/console/#/locks`);
    await expect(toggle(tab, en.alerts.on)).toBeVisible();
  }
  const d = await service.dispatch(region, { site_address: "1 First-ro" });
  await expect(card(page, "Pending", "1 First-ro")).toBeVisible();
  await expire(service, d);
  const all = async (...tabs: Page[]) => (await Promise.all(tabs.map(shown))).flat().map(([title, body]) => `${title}: ${body}`);
  await expect.poll(() => all(page, second, third)).toEqual([`${en.alerts.kinds.expired}: 1 First-ro · ${region} · 45m`]);

  await page.close();
  await expire(service, await service.dispatch(region, { site_address: "2 Second-ro" }));
  await expect.poll(() => all(second, third)).toEqual([`${en.alerts.kinds.expired}: 2 Second-ro · ${region} · 45m`]);
  await toggle(second, en.alerts.on).click();
  await expect(toggle(third, en.alerts.off)).toBeVisible(); // the choice is the browser's
});

test("what expired while no tab was open is alerted to by the next one", { tag: "@slow" }, async ({ own: service, openConsole, region }) => {
  const en = await textsOf("console", "en");
  const page = await openConsole("#/board", undefined, service);
  await turnOn(page, en);
  const next = await page.context().newPage();
  await page.close();
  await expire(service, await service.dispatch(region, { site_address: "1 Gone-ro" }));
  await next.goto(`${service.url}/console/#/jobs`);
  await expect.poll(() => shown(next)).toEqual([[en.alerts.kinds.expired, `1 Gone-ro · ${region} · 45m`]]);
});

test("many at once are one alert, and what ended during an outage is alerted to after it", { tag: "@slow" }, async ({ own: service, openConsole, region }) => {
  const en = await textsOf("console", "en");
  const page = await openConsole("#/board", undefined, service);
  await turnOn(page, en);
  await page.context().setOffline(true);
  await expect(page.getByText(en.cutOff)).toBeVisible();
  for (let n = 0; n < 5; n++) await expire(service, await service.dispatch(region, { site_address: `${n} Gone-ro` }));
  await page.context().setOffline(false);
  await expect.poll(async () => (await shown(page)).length).toBeGreaterThan(0);
  expect(await shown(page)).toEqual([["5 dispatches that nobody took", undefined]]);
});
