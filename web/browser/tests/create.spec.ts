import type { Request } from "@playwright/test";
import { type Page, type Service, accessible, expect, hold, loseAnswers, tabTo, test } from "../fixtures.ts";

const starts = new Date(Date.now() + 48 * 3600_000);

/** Formats a time in Asia/Seoul for a datetime-local, some hours after the work's start. */
function local(hours = 0): string {
  return new Date(starts.getTime() + hours * 3600_000).toLocaleString("sv-SE", { timeZone: "Asia/Seoul" }).replace(" ", "T").slice(0, 16);
}

async function fill(page: Page, region: string): Promise<void> {
  await page.getByLabel("Region").fill(region);
  await page.getByLabel("Vehicle class").fill("45m");
  await page.getByLabel("Work starts").fill(local());
  await page.getByLabel("Work ends").fill(local(3));
  await page.getByLabel("Address").fill("12 Teheran-ro, Gangnam-gu");
  await page.getByLabel("Fee", { exact: true }).fill("350,000");
}

const submit = (page: Page) => page.getByRole("button", { name: "Create dispatch" });

const unsettled = (page: Page) => page.getByText("Nobody knows yet whether the last dispatch was made");

/** Sends the filled form, and loses the answer. */
async function lose(page: Page, region: string): Promise<void> {
  await loseAnswers(page, create, { method: "POST" });
  await fill(page, region);
  await submit(page).click();
  await expect(unsettled(page)).toBeVisible();
  await page.unroute(create);
}

async function made(service: Service, region: string): Promise<any[]> {
  return (await service.call("GET", `/v1/admin/dispatches?region=${region}`)).items;
}

/** Matches the request that creates a dispatch. */
const create = "**/v1/admin/dispatches";

test("the preview counts the eligible drivers, and the others' reasons", async ({ openConsole, own: service }) => {
  const [busy] = await service.drivers(1, "seoul", { working_height_m: 45 });
  await service.drivers(2, "seoul", { working_height_m: 45 });
  await service.drivers(5, "seoul", { working_height_m: 45, on_duty: false });
  await service.drivers(4, "busan", { working_height_m: 45 });
  await service.drivers(3, "seoul", { working_height_m: 45, vehicle_class: "28m" });
  await service.drivers(2, "seoul", { working_height_m: 30 });
  const [suspended] = await service.drivers(1, "seoul", { working_height_m: 45 });
  await service.call("POST", `/v1/admin/drivers/${suspended!.id}/suspend`, {});
  const work = await service.dispatch("seoul", { work_starts_at: starts.toISOString(), work_ends_at: new Date(starts.getTime() + 3600_000).toISOString() });
  await service.accept(work.id, busy!.token);

  const page = await openConsole("#/new", undefined, service);
  const preview = page.getByRole("region", { name: "Who could take it" }).getByRole("status");
  await expect(preview).toContainText("are counted");
  await fill(page, "seoul");
  await page.getByLabel("Working height").fill("40");
  await expect(preview).toContainText("2 eligible, 15 not: 5 off duty, 1 suspended, 4 in other regions, 3 with another vehicle, 2 not high enough");
  await expect(preview).toContainText("1 could, but has other work then.");
  await page.getByLabel("Working height").fill("");
  await expect(preview).toContainText("4 eligible, 13 not");
  await page.getByLabel("Region").fill("busan");
  await expect(preview).toContainText("4 eligible, 14 not");
  await page.getByLabel("Work ends").fill(local(-1));
  await expect(preview).toContainText("Can't tell who could take it. Work ends must be after “Work starts”");
  await page.getByLabel("Work ends").fill(local(1));
  await expect(preview).toContainText("4 eligible");
  await service.stop("SIGKILL");
  await page.getByLabel("Work ends").fill(local(2));
  await expect(preview).toContainText("Can't tell who could take it. The service can't be reached.");
});

test("an older preview never takes the place of a newer one", async ({ openConsole, service, region }) => {
  await service.drivers(1, region);
  const page = await openConsole("#/new");
  let release = () => {};
  const held = new Promise<void>((resolve) => { release = resolve; });
  let asked = 0;
  await page.route("**/preview", async (route) => {
    if (route.request().postDataJSON().vehicle_class !== "45m") return route.fallback();
    const response = await route.fetch();
    asked++;
    await held;
    await route.fulfill({ response }).catch(() => {}); // the page may have aborted it
  });
  const about = (kind: string) => (r: Request) => r.url().endsWith("/preview") && r.postDataJSON().vehicle_class === kind;
  const over = Promise.race([page.waitForEvent("requestfinished", about("45m")), page.waitForEvent("requestfailed", about("45m"))]);
  await fill(page, region);
  const preview = page.getByRole("region", { name: "Who could take it" }).getByRole("status");
  await expect.poll(() => asked).toBeGreaterThan(0);
  await page.getByLabel("Vehicle class").fill("28m");
  await expect(preview).toContainText("0 eligible");
  release();
  await over;
  await page.evaluate(() => new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown))));
  expect(await preview.textContent()).toContain("0 eligible"); // at once, because it is counted again after a while
});

test("a dispatch is created from all its fields", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const page = await openConsole("#/new", await service.key("dispatcher"));
  await fill(page, region);
  await expect(page.getByText("₩350,000")).toBeVisible();
  await expect(page.getByText("Asia/Seoul, GMT+9").first()).toBeVisible();
  await page.getByLabel("Working height").fill("37.5");
  await page.getByLabel("Latitude").fill("37.4979");
  await page.getByLabel("Longitude").fill("127.0276");
  await page.getByLabel("External ID").fill(`order-${region}`);
  await page.getByLabel("Note").fill("Gate 2,\nask for Mr. Park.");
  await page.getByRole("group", { name: "Opens" }).getByLabel("later").check();
  await page.getByLabel("Opens at").fill(local(-24));
  await page.getByRole("group", { name: "Expires" }).getByLabel("at a time").check();
  await page.getByLabel("Expires at").fill(local(-23));
  await accessible(page);
  await submit(page).click();
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);

  const [d] = await made(service, region);
  expect(page.url()).toContain(d.id);
  const at = (hours: number) => `${new Date(starts.getTime() + hours * 3600_000).toISOString().slice(0, 16)}:00.000Z`;
  expect(d).toMatchObject({
    status: "SCHEDULED", region, vehicle_class: "45m", min_working_height_m: 37.5, site_address: "12 Teheran-ro, Gangnam-gu",
    site_lat: 37.4979, site_lng: 127.0276, fee: { amount: 350000, currency: "KRW" }, external_id: `order-${region}`,
    note: "Gate 2,\nask for Mr. Park.", work_starts_at: at(0), work_ends_at: at(3), opens_at: at(-24), expires_at: at(-23),
  });
  await page.evaluate(() => { location.hash = "#/new"; });
  await expect(page.getByLabel("Region")).toHaveValue("");
});

test("an error stands beside its field, and no input is lost", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const page = await openConsole("#/new");
  await submit(page).click();
  await expect(page.getByLabel("Fee", { exact: true })).toHaveAccessibleDescription("is required");
  await page.getByLabel("Fee", { exact: true }).fill("12.5");
  await submit(page).click();
  await expect(page.getByLabel("Fee", { exact: true })).toHaveAccessibleDescription("must be a whole number like 350000");
  await page.getByLabel("Currency").fill("usd");
  await expect(page.getByText("$12.50")).toBeVisible();
  await page.getByLabel("Latitude").fill("91");
  await submit(page).click();
  await expect(page.getByLabel("Region")).toHaveAccessibleDescription("is required");
  await expect(page.getByLabel("Region")).toBeFocused();
  await expect(page.getByLabel("Work ends")).toHaveAccessibleDescription(/is required/);
  await expect(page.getByLabel("Latitude")).toHaveAccessibleDescription(/must be at most 90/);
  await expect(page.getByLabel("Longitude")).toHaveAccessibleDescription("is required with “Latitude”");
  await expect(page.getByRole("alert")).toContainText("fields are not right");
  await accessible(page);
  await page.getByLabel("Latitude").clear();
  await fill(page, region);
  await page.getByLabel("Fee", { exact: true }).fill("12.5");
  await page.getByRole("group", { name: "Opens" }).getByLabel("later").check();
  await page.getByLabel("Opens at").fill("2020-01-01T09:00");
  await submit(page).click();
  await expect(page.getByText("Expires at must be after the opening and in the future")).toBeVisible();
  await expect(page.getByLabel("Note")).toHaveValue("");
  await page.getByRole("group", { name: "Opens" }).getByLabel("now").check();

  await service.dispatch(region, { external_id: `twice-${region}` });
  await page.getByLabel("External ID").fill(`twice-${region}`);
  await submit(page).click();
  await expect(page.getByLabel("External ID")).toHaveAccessibleDescription(/A dispatch has this already/);
  await expect(page.getByRole("link", { name: "Search for it" })).toHaveAttribute("href", `#/board?q=twice-${region}`);
  await page.getByLabel("External ID").fill(`once-${region}`);
  await submit(page).click();
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);
  expect((await made(service, region)).map((d) => d.fee)).toContainEqual({ amount: 1250, currency: "USD" });
});

test("a double click creates one dispatch", async ({ openConsole, service, region }) => {
  const page = await openConsole("#/new");
  const keys = new Set<string>(); // a request without an answer is sent again with its key
  page.on("request", (r) => { if (r.method() === "POST" && r.url().endsWith("/v1/admin/dispatches")) keys.add(r.headers()["idempotency-key"]!); });
  await fill(page, region);
  // Two clicks and an Enter in one turn of the page, before it can render.
  await submit(page).evaluate((button: HTMLButtonElement) => { button.click(); button.click(); button.form!.requestSubmit(); });
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);
  expect(keys.size).toBe(1);
  expect(await made(service, region)).toHaveLength(1);
});

test("after a lost answer the same form creates one dispatch, even reloaded", async ({ openConsole, service, region }) => {
  const page = await openConsole("#/new");
  const keys = new Set<string>();
  page.on("request", (r) => { if (r.method() === "POST" && r.url().endsWith("/v1/admin/dispatches")) keys.add(r.headers()["idempotency-key"]!); });
  await lose(page, region);
  expect(await made(service, region)).toHaveLength(1);
  await expect(page.getByLabel("Region")).toHaveValue(region);

  await page.reload();
  await expect(unsettled(page)).toBeVisible();
  await expect(page.getByLabel("Address")).toHaveValue("12 Teheran-ro, Gangnam-gu");
  await submit(page).click();
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);
  expect(keys.size).toBe(1);
  const all = await made(service, region);
  expect(all).toHaveLength(1);
  expect(page.url()).toContain(all[0].id);
});

test("a changed form creates another dispatch", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  const page = await openConsole("#/new");
  await lose(page, region);
  await page.getByLabel("Address").fill("another site");
  await submit(page).click();
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);
  expect((await made(service, region)).map((d) => d.site_address).sort()).toEqual(["12 Teheran-ro, Gangnam-gu", "another site"]);
});

test("a killed and restarted service creates one dispatch", { tag: "@slow" }, async ({ openConsole, own: service }) => {
  const page = await openConsole("#/new", undefined, service);
  await fill(page, "seoul");
  await service.stop("SIGKILL");
  const release = await hold(page, create); // or all its tries may have failed before anybody looks
  await submit(page).click();
  await expect(page.getByRole("button", { name: "Creating" })).toBeDisabled();
  release();
  await expect(unsettled(page)).toBeVisible();
  await service.start();
  await submit(page).click();
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);
  expect(await made(service, "seoul")).toHaveLength(1);
});

test("the whole form by keyboard", { tag: "@slow" }, async ({ openConsole, service, region }) => {
  await service.drivers(1, region);
  const page = await openConsole("#/new");
  await page.getByRole("link", { name: "New dispatch" }).focus();
  await page.keyboard.press("Enter");
  const to = (label: string, exact = false) => tabTo(page.getByLabel(label, { exact }));
  const type = async (label: string, text: string, exact = false) => {
    await to(label, exact);
    await page.keyboard.type(text);
  };
  // A datetime-local is typed part by part, in the order of the browser's language: these keys fit by day and by month, and
  // with a clock of 12 or 24 hours.
  const time = async (label: string, dayAndMonth: string, hour: string) => {
    await to(label);
    await page.keyboard.type(`${dayAndMonth}${dayAndMonth}${starts.getFullYear() + 1}`);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.type(`${hour}00A`);
  };
  await type("Region", region);
  await type("Vehicle class", "45m");
  await time("Work starts", "12", "09");
  await time("Work ends", "12", "11");
  await type("Address", "12 Teheran-ro");
  await type("Fee", "350000", true);
  await to("now");
  await page.keyboard.press("ArrowRight");
  await time("Opens at", "11", "09");
  await to("10 min after it opens");
  await expect(page.getByRole("status").filter({ hasText: "1 eligible" })).toBeVisible();
  await tabTo(submit(page));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/#\/dispatches\/dsp_/);
  expect(await made(service, region)).toMatchObject([{
    status: "SCHEDULED", site_address: "12 Teheran-ro", work_starts_at: `${starts.getFullYear() + 1}-12-12T00:00:00.000Z`,
  }]);
});
