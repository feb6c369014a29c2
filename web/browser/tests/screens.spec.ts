import { mkdir } from "node:fs/promises";
import { type Page, accessible, expect, test } from "../fixtures.ts";
import { day, populate } from "../day.ts";
import { tap } from "../driver.ts";
import { past } from "../supply.ts";

// FIRSTTAP_SCREENSHOTS is the folder of the pictures, docs/ for the README's pictures.
const folder = process.env.FIRSTTAP_SCREENSHOTS ?? "results/screens";

/** Fills the form of a dispatch without submitting it. */
async function typed(page: Page): Promise<void> {
  const work = (hours: number) => new Date(Date.now() + (9 + hours) * 3600_000).toISOString().slice(0, 14) + "00";
  await page.getByLabel("Region").fill("seoul");
  await page.getByLabel("Vehicle class").fill("45m");
  await page.getByLabel("Work starts").fill(work(70));
  await page.getByLabel("Work ends").fill(work(74));
  await page.getByLabel("Address").fill("서울 강남구 봉은사로 524");
  await page.getByLabel("Fee", { exact: true }).fill("380000");
  await expect(page.getByText(/^\d+ eligible, \d+ not/)).toBeVisible();
}

const console_: { name: string; hash: (d: { taken: any; drivers: any[] }) => string; ready: (page: Page) => Promise<void> }[] = [
  { name: "board", hash: () => "#/board", ready: (p) => expect(p.getByRole("heading", { name: "Accepted 2" })).toBeVisible() },
  { name: "dispatch", hash: ({ taken }) => `#/dispatches/${taken.id}`, ready: (p) => expect(p.getByText(/^11 taps by 11 drivers/)).toBeVisible() },
  { name: "new", hash: () => "#/new", ready: typed },
  { name: "drivers", hash: () => "#/drivers", ready: (p) => expect(p.getByText("한유진")).toBeVisible() },
  { name: "driver", hash: ({ drivers }) => `#/drivers/${drivers[0].id}`, ready: (p) => expect(p.getByRole("heading", { name: "김민준" })).toBeVisible() },
  { name: "notifications", hash: () => "#/notifications", ready: (p) => expect(p.getByRole("heading", { name: "Notifications" })).toBeVisible() },
  { name: "jobs", hash: () => "#/jobs", ready: (p) => expect(p.getByText("expire-offers").first()).toBeVisible() },
  { name: "locks", hash: () => "#/locks", ready: (p) => expect(p.getByRole("heading", { name: "Locks" })).toBeVisible() },
  { name: "supply", hash: () => "#/supply", ready: (p) => expect(p.getByRole("heading", { name: "Supply" })).toBeVisible() },
  { name: "keys", hash: () => "#/keys", ready: (p) => expect(p.getByText("FIRSTTAP_ADMIN_KEY").first()).toBeVisible() },
  { name: "webhooks", hash: () => "#/webhooks", ready: (p) => expect(p.getByRole("heading", { name: "Webhooks" })).toBeVisible() },
  { name: "audit", hash: () => "#/audit", ready: (p) => expect(p.getByRole("heading", { name: "Audit" })).toBeVisible() },
];

test.use({ settings: { FIRSTTAP_RATE_LIMIT_DRIVER: "1000/s" } });

test("a picture of each page, which is accessible", { tag: "@slow" }, async ({ openConsole, openDriver, open, own: service }) => {
  await mkdir(folder, { recursive: true });
  const made = await populate(service);
  past(service, day());
  const office = await openConsole("#/board", undefined, service);
  await office.setViewportSize({ width: 1280, height: 800 });
  for (const page of console_) {
    await office.evaluate((h) => { location.hash = h; }, page.hash(made));
    await page.ready(office);
    await picture(office, `console-${page.name}`);
  }
  await office.evaluate(() => { location.hash = "#/board"; });
  await office.getByRole("button", { name: "한국어" }).click();
  await expect(office.getByRole("heading", { name: "수락됨 2" })).toBeVisible();
  await picture(office, "console-korean");
  const phone = await openDriver(made.drivers[10].token, service);
  await phone.setViewportSize({ width: 390, height: 844 });
  const offers = phone.getByRole("article");
  await expect(offers).toHaveCount(6);
  await picture(phone, "driver-offers");
  await tap(offers.nth(1));
  await expect(offers.filter({ hasText: "Yours" })).toHaveCount(1);
  await picture(phone, "driver-yours");
  await phone.getByRole("button", { name: "한국어" }).click();
  await picture(phone, "driver-korean");
  await picture(await open("/console/", service), "console-signin");
});

async function picture(page: Page, name: string): Promise<void> {
  await accessible(page);
  await page.screenshot({ path: `${folder}/${name}.png`, animations: "disabled" });
}
