import type { Download } from "@playwright/test";
import { readFile } from "node:fs/promises";
import { type Page, accessible, cut, expect, test } from "../fixtures.ts";
import { foreign, languages, textsOf } from "../language.ts";
import type { Json } from "../service.ts";
import { past } from "../supply.ts";

/** Presses the button, waits for the file, and closes the dialog. */
async function exported(page: Page, t: Json): Promise<{ name: string; lines: string[][] }> {
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: t.export.button }).click();
  const download = await saved;
  await page.getByRole("dialog").getByRole("button", { name: t.done, exact: true }).click();
  return { name: download.suggestedFilename(), lines: await read(download) };
}

/** Reads a file as RFC 4180 says, by lines of cells. */
async function read(download: Download): Promise<string[][]> {
  const text = await readFile((await download.path())!, "utf8");
  expect(text.slice(0, 1)).toBe("\ufeff");
  const lines: string[][] = [];
  for (let at = 1; at < text.length;) {
    const line: string[] = [];
    for (;;) {
      const [all, quoted, plain] = /^(?:"((?:[^"]|"")*)"|([^",\r\n]*))/.exec(text.slice(at, at + 100_000))!;
      line.push(quoted?.replaceAll('""', '"') ?? plain!);
      at += all.length;
      if (text[at] !== ",") break;
      at++;
    }
    expect(text.slice(at, at + 2)).toBe("\r\n");
    at += 2;
    lines.push(line);
  }
  return lines;
}

/** Returns a line after the titles as an object by them. */
const row = ([titles, ...lines]: string[][], n: number) => Object.fromEntries(titles!.map((title, i) => [title, lines[n]![i]]));

const korean = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+09:00$/; // a time in Seoul, where these browsers are

for (const { lang, locale, tag } of languages) {
  test.describe(lang, { tag }, () => {
    test.use({ locale, acceptDownloads: true });

    test("all pages of a list are exported with its filters, and no cell is run by a spreadsheet", { tag: "@slow" }, async ({ openConsole, service, region }) => {
      const t = await textsOf("console", lang);
      const names = ['=HYPERLINK("http://evil.example","Kim, ""Lee""")', "@SUM(1)", "-2+3", "김민준"];
      const made = await service.call("POST", "/v1/admin/drivers/bulk", { drivers: [
        ...names.map((name, i) => ({ name, phone: `+82101234000${i}`, regions: [region, "b"], vehicle_class: "45m", working_height_m: 41.5, locale: "ko-KR" })),
        ...Array.from({ length: 450 }, (_, i) => ({ name: `Driver ${i}`, phone: `+8210123${41000 + i}`, regions: [region], vehicle_class: "45m" })),
        ...Array.from({ length: 5 }, (_, i) => ({ name: `Other ${i}`, phone: `+8210123${51000 + i}`, regions: [region], vehicle_class: "28m" })),
      ] });
      const page = await openConsole(`#/drivers?region=${region}&vehicle_class=45m`, await service.key("viewer"));
      await expect(page.getByText(t.paging.count(t.paging.drivers(50), true))).toBeVisible();
      const { name, lines } = await exported(page, t);
      expect(name).toMatch(/^firsttap-drivers-\d{8}-\d{6}\.csv$/);
      expect(lines[0]!.slice(0, 6)).toEqual([t.fields.name, t.drivers.duty, t.fields.regions, t.fields.vehicle_class, t.drivers.heightM, t.fields.phone]);
      expect(lines).toHaveLength(1 + 454);
      expect(new Set(lines.map((line) => line.length))).toEqual(new Set([lines[0]!.length]));
      const of = new Map(lines.slice(1).map((line, i) => [line[0]!, i]));
      for (const [i, typed] of names.entries()) {
        const driver = row(lines, of.get(/^[=@+-]/.test(typed) ? `'${typed}` : typed)!);
        expect(driver[t.fields.phone]).toBe(`+82101234000${i}`);
        expect(driver).toMatchObject({ [t.drivers.id]: made.items[i].id, [t.fields.regions]: `${region}, b`, [t.drivers.heightM]: "41.5", [t.drivers.duty]: t.drivers.off });
        expect(driver[t.drivers.since]).toMatch(korean);
      }
      const { created_at } = await service.call("GET", `/v1/admin/drivers/${made.items[0].id}`);
      expect(Date.parse(row(lines, of.get(`'${names[0]}`)!)[t.drivers.since]!)).toBe(Date.parse(created_at));
    });

    test("the dispatches, the pushes, the supply, the keys and the audit are exported", { tag: "@slow" }, async ({ own: service, openConsole, region }) => {
      const t = await textsOf("console", lang);
      const [driver] = await service.drivers(1, region, { name: "김민준" });
      await service.call("PUT", "/v1/me/devices/phone", { platform: "android", push_token: "phone" }, { token: driver!.token });
      const d = await service.dispatch(region, { site_address: "서울 강남구 테헤란로 1", note: "Gate 2,\n=1+1", external_id: "-4711" });
      await service.accept(d.id, driver!.token);
      await service.dispatch(region, { vehicle_class: "28m" });
      await service.dispatch(`${region}-2`);
      await service.call("PATCH", `/v1/admin/drivers/${driver!.id}`, { name: "이서연" });
      past(service, [[2, "", 3, 2], [1, "", 3, 2], [2, region, 1, 1], [1, region, 2, 1]]);
      await expect.poll(async () => (await service.call("GET", "/v1/admin/notifications?status=SENT")).items.length).toBeGreaterThan(0);

      const page = await openConsole(`#/board?region=${region}&class=45m`, undefined, service);
      let { lines } = await exported(page, t);
      expect(lines).toHaveLength(2);
      const dispatch = row(lines, 0);
      expect(dispatch).toMatchObject({
        [t.terms.id]: d.id, [t.fields.external_id]: "'-4711", [t.dispatch.state]: t.states.ACCEPTED, [t.fields.fee]: "350000", [t.fields["fee.currency"]]: "KRW",
        [t.terms.holder]: "이서연", [t.export.idOf(t.terms.holder)]: driver!.id, [t.fields.note]: "Gate 2,\n'=1+1", [t.fields.site_address]: "서울 강남구 테헤란로 1",
      });
      for (const at of [t.fields.work_starts_at, t.fields.opens_at, t.fields.expires_at, t.export.acceptedAt, t.terms.made, t.terms.changed]) expect(dispatch[at]).toMatch(korean);

      const go = async (hash: string, heading: string) => {
        await page.evaluate((h) => { location.hash = h; }, hash);
        await expect(page.getByRole("heading", { level: 1, name: heading })).toBeVisible();
        return (await exported(page, t)).lines;
      };
      lines = await go("#/notifications/SENT", t.page.notifications);
      expect(row(lines, 0)).toMatchObject({ [t.lists.status]: t.pushStates.SENT, [t.pushes.dispatch]: d.id, [t.pushes.to]: "이서연", [t.lists.silent]: expect.stringMatching(/./) });
      expect(row(lines, 0)[t.pushes.last.SENT]).toMatch(korean);
      lines = await go(`#/supply?region=${region}&hours=1`, t.page.supply);
      const points = lines.slice(1).filter(([, where]) => where === region).map((line) => line.slice(2));
      expect(points.slice(-2)).toEqual([["2", "1"], ["1", "1"]]); // the newest first; the schedule may have counted since
      expect(lines[1]![0]).toMatch(korean);
      lines = await go("#/keys", t.page.keys);
      expect(lines[0]).toEqual([t.fields.name, t.fields.role, t.keys.made, t.export.revokedAt, t.keys.id]);
      expect(lines.at(-1)).toEqual(["FIRSTTAP_ADMIN_KEY", t.roles.admin, expect.any(String), "", "key_first"]);
      lines = await go(`#/audit?target=${driver!.id}`, t.page.audit);
      const change = lines.findIndex((line) => line.includes(t.audit.actions["driver.update"])) - 1;
      expect(row(lines, change)).toMatchObject({
        [t.audit.who]: "FIRSTTAP_ADMIN_KEY", [t.export.idOf(t.audit.who)]: "key_first", [t.audit.to]: driver!.id, [t.audit.details]: `${t.fields.name} ${t.audit.values.changed}`,
      });
    });

    test("an export shows its progress, is canceled, and goes on after a failure", { tag: "@slow" }, async ({ openConsole, service, region }) => {
      const t = await textsOf("console", lang);
      for (let n = 0; n < 3; n++) await service.drivers(150, region);
      const page = await openConsole(`#/drivers?region=${region}`);
      await expect(page.getByText(t.paging.count(t.paging.drivers(50), true))).toBeVisible();
      const later = /\/v1\/admin\/drivers\?.*cursor=/;
      const begin = page.getByRole("button", { name: t.export.button }), dialog = page.getByRole("dialog", { name: t.export.title });
      let files = 0;
      page.on("download", () => files++);

      await page.route(later, () => {}); // the second page does not come
      await begin.focus();
      await page.keyboard.press("Enter");
      await expect(dialog.getByText(t.export.read(200))).toBeVisible();
      await expect(dialog.getByRole("progressbar")).toBeVisible();
      expect(await foreign(page, lang, [region, "Driver", "45m"])).toEqual([]);
      await accessible(page);
      await dialog.getByRole("button", { name: t.export.stop }).click();
      await expect(dialog).toHaveCount(0);
      await expect(begin).toBeFocused();
      await page.unroute(later);

      await cut(page, later);
      await begin.click();
      await expect(dialog.getByRole("alert")).toHaveText(t.unreachable);
      await page.unroute(later);
      const saved = page.waitForEvent("download");
      await dialog.getByRole("button", { name: t.export.again }).click();
      expect(await read(await saved)).toHaveLength(1 + 450);
      await expect(dialog.getByRole("status")).toContainText(t.export.done(450));
      expect(await foreign(page, lang, [region, "Driver", "45m"])).toEqual([]);
      await accessible(page);
      expect(files).toBe(1);
    });

    test("a list that is too long is cut off, and the page and the file's name say so", { tag: "@slow" }, async ({ openConsole }) => {
      const t = await textsOf("console", lang);
      const page = await openConsole("#/keys");
      let n = 0;
      await page.route("**/v1/admin/api-keys?limit=200*", (route) => route.fulfill({ json: {
        items: Array.from({ length: 200 }, () => ({ id: `key_${n++}`, name: "열쇠", role: "viewer", created_at: "2026-12-01T00:00:00.000Z", revoked_at: null })),
        next_cursor: String(n), server_time: new Date().toISOString(),
      } }));
      const saved = page.waitForEvent("download");
      await page.getByRole("button", { name: t.export.button }).click();
      const download = await saved;
      await expect(page.getByRole("dialog").getByText(t.export.cut(50_000))).toBeVisible();
      expect(download.suggestedFilename()).toMatch(/^firsttap-keys-\d{8}-\d{6}-first-50000\.csv$/);
      expect((await readFile((await download.path())!, "utf8")).split("\r\n")).toHaveLength(1 + 50_000 + 1);
      expect(n).toBe(50_000);
      await accessible(page);
    });
  });
}

test("an export that can't be loaded says so", async ({ openConsole }) => {
  const page = await openConsole("#/keys");
  await page.route("**/export_dialog.js", (route) => route.abort());
  await page.getByRole("button", { name: "Export CSV" }).click();
  await expect(page.getByText("The export can't be loaded.")).toBeVisible();
});
