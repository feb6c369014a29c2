import { firstView } from "../board.ts";
import { populate } from "../day.ts";
import { type Page, accessible, expect, test } from "../fixtures.ts";
import { type Language, foreign, languages, textsOf } from "../language.ts";
import type { Json, Service } from "../service.ts";
import { past } from "../supply.ts";

/** What people have typed into a service, and the names of its jobs, instances and requests. */
async function typed(service: Service): Promise<string[]> {
  const all = async (path: string): Promise<Json[]> => (await service.call("GET", `/v1/admin/${path}`)).items;
  const strings = (value: unknown): string[] => (typeof value === "string" ? [value] : value && typeof value === "object" ? Object.values(value).flatMap(strings) : []);
  const lists = await Promise.all([all("dispatches?limit=200"), all("drivers?limit=200"), all("api-keys"), all("locks"), all("jobs"), all("webhooks")]);
  const urls = (await all("audit?limit=200")).flatMap((e) => strings([e.detail.url ?? ""])); // they are masked
  const devices = await Promise.all(lists[1].map((d) => all(`drivers/${d.id}/devices`)));
  const happened = await Promise.all(lists[0].map((d) => all(`dispatches/${d.id}/events`)));
  const plain = (d: Json) => strings({ ...d, status: "", role: "", platform: "", events: "", pause_reason: "", last_run: null, running: null, queued: null, time_zone: "" });
  const instances = strings(lists[3].map((l) => [l.holder, l.holder.split("/")[0]])).concat(lists[4].flatMap((j) => strings([j.last_run?.instance, j.running?.instance])));
  return [...lists.flat(), ...devices.flat()].flatMap(plain).filter((s) => !/^\d{4}-\d\d-/.test(s)).concat(instances, urls, strings(happened.flat().map((e) => e.request_id)), "CUSTOMER", "127.0.0.1");
}

for (const { lang, locale, tag } of languages) {
  test.describe(lang, { tag }, () => {
    test.use({ locale, settings: { FIRSTTAP_RATE_LIMIT_DRIVER: "1000/s", FIRSTTAP_WEBHOOK_ALLOW_PRIVATE: "true" } });

    test("nothing on any page of the console is in another language", { tag: "@slow" }, async ({ openConsole, own: service }) => {
      const t = await textsOf("console", lang);
      const hook = await service.call("POST", "/v1/admin/webhooks", { url: "http://127.0.0.1:1/webhooks", events: ["*"] }); // where nobody listens
      const { drivers, taken } = await populate(service);
      past(service, [[1, "", 3, 2], [0, "", 3, 2], [1, "seoul", 3, 2], [0, "seoul", 3, 2]]);
      const { items: [waiting] } = await service.call("GET", "/v1/admin/dispatches?status=PENDING");
      const over = await service.dispatch("seoul");
      service.move(over.id, "expires_at", -1000);
      await service.call("POST", "/v1/admin/jobs/expire-offers/run");
      await service.call("POST", `/v1/admin/drivers/${drivers[11].id}/suspend`, {});
      await expect.poll(async () => (await service.read(over)).status).toBe("EXPIRED");
      const page = await openConsole("#/board", undefined, service);
      const data = await typed(service);
      const look = async () => {
        expect(await foreign(page, lang, data)).toEqual([]);
      };
      const go = async (hash: string, heading: string) => {
        await page.evaluate((h) => { location.hash = h; }, hash);
        await expect(page.getByRole("heading", { level: 1, name: heading })).toBeVisible();
      };
      // Opens a dialog by its button, looks, and closes it.
      const ask = async (name: string) => {
        await page.getByRole("button", { name, exact: true }).first().click();
        await expect(page.getByRole("dialog")).toBeVisible();
        await look();
        await page.keyboard.press("Escape");
        await expect(page.getByRole("dialog")).toHaveCount(0);
      };
      expect(await page.evaluate(() => document.documentElement.lang)).toBe(lang);
      await expect(page).toHaveTitle(t.titleOf(t.page.board));
      await expect(page.getByRole("heading", { name: `${t.board.columns.ACCEPTED} 2` })).toBeVisible();
      await look();
      await accessible(page);

      await go(`#/dispatches/${taken.id}`, taken.site_address);
      await expect(page.getByText(t.race.tapped(11, 11))).toBeVisible();
      await expect(page.getByText(t.events["dispatch.accepted"], { exact: true }).first()).toBeVisible();
      await look();
      await accessible(page);
      await page.getByRole("group", { name: t.race.drawn }).focus();
      await page.keyboard.press("ArrowDown");
      await look();
      for (const action of ["unassign", "cancel"]) await ask(t.dispatch.action[action]);
      await go(`#/dispatches/${waiting.id}`, waiting.site_address);
      for (const action of ["assign", "extend", "edit", "cancel"]) await ask(t.dispatch.action[action]);
      await go(`#/dispatches/${over.id}`, over.site_address);
      await ask(t.dispatch.action.reopen);
      await go("#/dispatches/dsp_none", t.dispatch.missing);
      await look();

      await go("#/new", t.page.new);
      await look();
      await page.getByRole("button", { name: t.create.dispatch }).click();
      await expect(page.locator("[aria-invalid=true]").first()).toBeFocused();
      await look();
      await page.getByLabel(t.fields.fee, { exact: true }).fill("350000");
      await page.getByLabel(t.fields.site_lat).fill("91");
      await page.getByLabel(t.region).fill("seoul");
      await page.getByLabel(t.fields.vehicle_class).fill("45m");
      const hour = (n: number) => new Date(Date.now() + n * 3600_000).toISOString().slice(0, 16);
      await page.getByLabel(t.fields.work_starts_at).fill(hour(48));
      await page.getByLabel(t.fields.work_ends_at).fill(hour(50));
      await expect(page.locator(".preview .eligible")).toBeVisible();
      await page.getByRole("button", { name: t.create.dispatch }).click();
      await expect(page.getByLabel(t.fields.site_lat)).toHaveAccessibleDescription(new RegExp(t.rules.atMost("90")));
      await look();
      await accessible(page);

      await go("#/drivers", t.page.drivers);
      await expect(page.getByRole("link", { name: "한유진" })).toBeVisible();
      await look();
      await accessible(page);
      await go("#/drivers/new", t.drivers.newDriver);
      await look();
      await go(`#/drivers/${drivers[0].id}`, "김민준");
      await expect(page.getByText(t.signals.fastest)).toBeVisible();
      await expect(page.getByText(t.devices.good, { exact: true })).toBeVisible();
      await look();
      await accessible(page);
      for (const name of [t.drivers.edit, t.drivers.suspend, t.drivers.issue, t.drivers.endTokens, t.drivers.erase, t.devices.remove]) await ask(name);
      await go(`#/drivers/${drivers[11].id}`, "오건우");
      await ask(t.drivers.reinstate);

      await go("#/notifications", t.page.notifications);
      for (const status of ["DEAD", "DROPPED", "SENT", "PENDING"]) {
        await page.getByRole("tab", { name: new RegExp(`^${t.pushes.tabs[status]}`) }).click();
        await expect(page.getByText(t.pushes.empty[status]).or(page.getByRole("tabpanel").getByRole("table"))).toBeVisible();
        await look();
      }
      await accessible(page);
      await go("#/jobs", t.page.jobs);
      await page.getByRole("button", { name: t.jobs.runsOf("expire-offers") }).click();
      await expect(page.getByRole("table", { name: t.jobs.lastRuns("expire-offers") })).toBeVisible();
      await look();
      await ask(t.jobs.runOf("nightly"));
      await accessible(page);
      await go("#/locks", t.page.locks);
      await expect(page.getByText(t.freshness.current, { exact: true })).toBeVisible();
      await look();
      await go("#/supply", t.page.supply);
      await page.getByText(t.supply.table).click();
      await expect(page.locator(".uplot")).toBeVisible();
      await expect(page.getByText(t.supply.regions)).toBeVisible();
      await look();
      await accessible(page);
      await go("#/keys", t.page.keys);
      await page.getByRole("button", { name: t.keys.make }).click();
      await expect(page.locator("[aria-invalid=true]").first()).toBeFocused();
      await look();
      await accessible(page);
      await go("#/webhooks", t.page.webhooks);
      await page.getByRole("button", { name: t.webhooks.make }).click();
      await expect(page.locator("[aria-invalid=true]").first()).toBeFocused();
      await page.getByLabel(t.webhooks.someEvents).check();
      await look();
      await accessible(page);
      await go(`#/webhooks/${hook.id}`, hook.url);
      await page.getByRole("button", { name: t.webhooks.test }).click();
      await expect(page.getByText(t.webhooks.said.tested)).toBeVisible();
      await page.getByRole("button", { name: t.webhooks.log.detailsOf(t.webhooks.log.test) }).first().click();
      await look();
      await accessible(page);
      for (const name of ["edit", "pause", "replay", "rotate", "remove"]) await ask(t.webhooks[name]);
      await ask(t.webhooks.log.againOf(t.webhooks.log.test));
      await page.getByRole("button", { name: t.webhooks.rotate }).click();
      await page.getByRole("dialog").getByRole("button", { name: t.webhooks.rotate }).click();
      await expect(page.getByRole("dialog", { name: t.webhooks.secretTitle })).toBeVisible();
      await look();
      await page.keyboard.press("Escape");
      await service.call("PATCH", `/v1/admin/webhooks/${hook.id}`, { status: "PAUSED" });
      await expect(page.getByText(t.webhooks.why.ADMIN)).toBeVisible();
      await look();
      await ask(t.webhooks.activate);
      await go("#/audit", t.page.audit);
      await expect(page.getByText(t.audit.actions["drivers.bulk"], { exact: true })).toBeVisible();
      await look();
      await accessible(page);
      await go("#/nowhere", t.page.board);
      await expect(page.getByText(t.noSuchPage)).toBeVisible();
      await page.context().setOffline(true);
      await expect(page.getByText(t.cutOff)).toBeVisible();
      await look();
      await page.context().setOffline(false);
      await expect(page.getByText(t.live, { exact: true })).toBeVisible();
      await page.getByRole("button", { name: t.signOut }).click();
      await page.getByLabel(t.apiKey).fill("wrong");
      await page.getByRole("button", { name: t.signIn }).click();
      await expect(page.getByText(t.noSuchKey)).toBeVisible();
      await look();
      await accessible(page);
    });

    test("each problem of the API is shown as a sentence, and never as a code", { tag: "@slow" }, async ({ openConsole, own: service }) => {
      const t = await textsOf("console", lang);
      const page = await openConsole("#/drivers", undefined, service); // which has no drivers, whose names are in any language
      const answers = (q: string) => ({ status: 409, contentType: "application/problem+json", body: JSON.stringify({ code: q, title: "Conflict", detail: `the detail of ${q}` }) });
      await page.route(/\/v1\/admin\/drivers\?.*q=/, (route) => route.fulfill(answers(new URL(route.request().url()).searchParams.get("q")!)));
      for (const code of [...Object.keys(t.codes), "A_LATER_CODE"]) {
        await page.getByRole("searchbox").fill(code);
        await expect(page.getByRole("alert").filter({ hasText: t.codes[code] ?? t.codes.INTERNAL })).toBeVisible();
        await expect(page.locator("main")).not.toContainText("the detail of");
        expect(await foreign(page, lang, [])).toEqual([]);
      }
    });

    test("the board's first view is small, and loads the texts of one language", { tag: "@slow" }, async ({ openConsole, own: service, region }) => {
      const t = await textsOf("console", lang);
      await service.dispatch(region);
      const { page, bytes, urls } = await firstView(await openConsole("#/locks", undefined, service), service.url);
      await expect(page.getByText(t.live, { exact: true })).toBeVisible();
      await expect(page.getByRole("link", { name: region })).toBeVisible();
      const texts = urls().map((u) => /words_\w+\.js/.exec(u)?.[0]).filter(Boolean).sort();
      expect(texts).toEqual([`words_${lang}.js`, `words_${lang}_admin.js`]);
      expect(urls().filter((u) => /\/(csv|export_dialog|alerts_)/.test(u))).toEqual([]); // they are loaded when they are used
      console.log(`${lang}: ${(bytes() / 1000).toFixed(1)} KB`);
      expect(urls().length).toBeLessThanOrEqual(40);
      expect(bytes()).toBeLessThan(100_000); // which leaves room for the dispatches of a large board
    });
  });
}

/** Changes the language by its button. */
async function speak(page: Page, to: Language): Promise<void> {
  await page.getByRole("button", { name: { en: "English", ko: "한국어" }[to] }).click();
  await expect(page.locator("html")).toHaveAttribute("lang", to);
}

test("another language keeps what is typed and what is open, and is kept", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const [driver] = await service.drivers(1, region, { name: `Kim of ${region}` });
  const d = await service.dispatch(region, { site_address: "12 Teheran-ro" });
  const page = await openConsole("#/new");
  const ko = await textsOf("console", "ko"), en = await textsOf("console", "en");
  await page.getByLabel("Note").fill("Gate 2");
  await page.getByRole("group", { name: "Opens" }).getByLabel("later").check();
  await page.getByRole("button", { name: "Create dispatch" }).click();
  await expect(page.getByLabel("Fee", { exact: true })).toHaveAccessibleDescription("is required");
  await page.evaluate(() => { (window as any).opened = true; });
  await speak(page, "ko");
  await expect(page).toHaveTitle(ko.titleOf(ko.page.new));
  await expect(page.getByLabel(ko.fields.note)).toHaveValue("Gate 2");
  await expect(page.getByLabel(ko.create.later)).toBeChecked();
  await expect(page.getByLabel(ko.fields.fee, { exact: true })).toHaveAccessibleDescription(ko.rules.required);
  await expect(page.getByText(ko.someFieldsWrong)).toBeVisible(); // an error that was there before

  await page.evaluate((id) => { location.hash = `#/dispatches/${id}`; }, d.id);
  await page.getByRole("button", { name: ko.dispatch.action.assign }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("searchbox").fill(driver!.name);
  await dialog.getByRole("radio").first().check();
  await page.locator("header.bar button[lang=en]").evaluate((button: HTMLElement) => button.click()); // the dialog covers it for the pointer
  await expect(page.getByRole("dialog", { name: en.assign.title })).toBeVisible();
  await expect(dialog.getByRole("searchbox")).toHaveValue(driver!.name);
  await expect(dialog.getByRole("radio").first()).toBeChecked();
  await dialog.getByRole("button", { name: /^Assign to/ }).click();
  const news = page.getByRole("status", { name: en.dispatch.yourChange });
  await expect(news).toHaveText(`Assigned to ${driver!.name}.`);
  await speak(page, "ko");
  await expect(page.getByRole("status", { name: ko.dispatch.yourChange })).toHaveText(`${ko.assign.past(driver!.name)}.`);
  expect(await page.evaluate(() => (window as any).opened)).toBe(true); // by one page, without a reload

  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("lang", "ko");
  await expect(page.getByRole("button", { name: ko.signOut })).toBeVisible();
  const phone = await page.context().newPage();
  await phone.goto(`${service.url}/driver/`);
  await expect(phone.getByRole("button", { name: "로그인" })).toBeVisible();
});

test("a language that can't be loaded changes nothing", { tag: "@slow" }, async ({ openConsole }) => {
  const page = await openConsole("#/drivers");
  await page.route("**/words_ko.js", (route) => route.abort());
  await page.getByRole("button", { name: "한국어" }).click();
  await expect(page.getByText("The other language could not be loaded.")).toBeVisible();
  await expect(page.getByRole("heading", { name: "Drivers" })).toBeVisible();
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("lang", "en");
});

test.describe(() => {
  test.use({ locale: "de-DE" });
  test("a browser without a language of the pages gets Korean", { tag: "@slow" }, async ({ open }) => {
    await expect((await open("/console/")).getByRole("button", { name: "로그인" })).toBeVisible();
  });
});
